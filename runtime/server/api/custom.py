"""Calls of `custom` tools, whose input is free text: to the model a function of one text."""

import json
import re
from collections.abc import Iterable
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.scheduler.messages import InputGrammar, ToolSpec

INPUT = "input"
"""The only argument of the function."""
MAX_BEGIN_CHARACTERS = 64
_BEGIN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_TEXT = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""Text of a JSON string, up to its end or to an escape that is not complete."""


def parameters() -> dict[str, Any]:
    """Return the JSON schema of the function's arguments."""
    text = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return {
        "type": "object",
        "properties": {INPUT: text},
        "required": [INPUT],
        "additionalProperties": False,
    }


def shown_function(name: str, description: str | None, grammar: InputGrammar | None) -> ToolSpec:
    """Return a custom tool in the engine's form; the model is told the grammar too."""
    told = [description or ""]
    if grammar is not None:
        told.append(
            f"The input has to follow this grammar ({grammar.syntax}):\n{grammar.definition}"
        )
    text = "\n\n".join(filter(None, told))
    function = {"name": name, "description": text, "parameters": parameters()}
    return {"type": "function", "function": function}


def enforced(
    tools: Iterable[tuple[str, str, InputGrammar | None]], engine: Engine
) -> tuple[dict[str, InputGrammar], list[str]]:
    """Return the grammars of custom tools, and a note for each that is not enforced.

    A tool is given by its name in the engine, its own name, and its grammar, if it has one. A
    grammar is not enforced where the model's format of calls has no place for it, or where nobody
    can read it.
    """
    inputs: dict[str, InputGrammar] = {}
    notes = []
    for key, name, grammar in tools:
        if grammar is None:
            continue
        try:
            engine.check_input(grammar)
        except UsageError as why:
            notes.append(f"grammar of {name}: {why}")
        else:
            inputs[key] = grammar
    return inputs, notes


def arguments_of(text: str) -> str:
    """Return the function's arguments for an input."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def input_of(arguments: str) -> str:
    """Return the input that a call's arguments hold, or else the arguments as they are."""
    try:
        given = json.loads(arguments, strict=False)
    except ValueError:
        return arguments
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


class InputReader:
    """Reads the input out of a call's arguments while they are written."""

    def __init__(self) -> None:
        self._held = ""
        self._has_begun = self._has_ended = False

    def push(self, text: str) -> str:
        """Take more of the arguments; return what they add to the input."""
        if self._has_ended:
            return ""
        self._held += text
        if not self._has_begun:
            begin = _BEGIN.match(self._held)
            if begin is None:
                self._has_ended = len(self._held) > MAX_BEGIN_CHARACTERS
                return ""
            self._has_begun, self._held = True, self._held[begin.end() :]
        found = _TEXT.match(self._held)
        piece = found[0] if found else ""
        self._held = self._held[len(piece) :]
        self._has_ended = self._held.startswith('"')
        return str(json.loads(f'"{piece}"', strict=False))
