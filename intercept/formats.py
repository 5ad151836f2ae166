"""How models write calls: the table of formats that the engine watches for.

A row says which bytes open a call, which close it, and where the request has to pause: at the
close of a call in the middle of a sentence, or at the end of the turn that holds the calls (so
that several calls of one turn are seen together and run in parallel).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

INLINE_CLOSE = ") ->"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way of writing calls.

    `opens`: texts that open a call. `closes`: the text that closes one; None where a call lasts
    to the end of the turn. `pause`: `call` pauses at the token that completes `closes`, `turn` at
    the token that ends the turn. `anchored`: `opens` count only as the first text of a turn.
    `certain`: text that opens a call is never meant for the reader, so what cannot be parsed is a
    malformed call and not prose. `parser` names vLLM's tool parser for the format.
    """

    name: str
    opens: tuple[str, ...]
    closes: str | None
    pause: Literal["call", "turn"]
    anchored: bool = False
    certain: bool = True
    parser: str | None = None


HERMES = CallFormat("hermes", ("<tool_call>",), "</tool_call>", "turn", parser="hermes")
LLAMA3_JSON = CallFormat(
    "llama3_json",
    ("<|python_tag|>", "{"),
    None,
    "turn",
    anchored=True,
    certain=False,
    parser="llama3_json",
)
MISTRAL = CallFormat("mistral", ("[TOOL_CALLS]",), None, "turn", parser="mistral")
INLINE = "inline"

TURN_FORMATS = {form.name: form for form in (HERMES, LLAMA3_JSON, MISTRAL)}
NAMES = (*TURN_FORMATS, INLINE)


def inline_format(tools: Iterable[str]) -> CallFormat:
    """Return the in-line format for these tools: `[name(arguments) -> result]`.

    The form is Toolformer's (Schick et al. 2023, section 2). It opens only at the name of a tool
    that is on offer, so that brackets in prose stay prose.
    """
    return CallFormat(
        INLINE, tuple(f"[{name}(" for name in tools), INLINE_CLOSE, "call", certain=False
    )


def resolve(names: Iterable[str], tools: Iterable[str]) -> tuple[CallFormat, ...]:
    """Return the formats by name, the in-line one for `tools`.

    Raises `ValueError` for a name that is not in the table.
    """
    tools = tuple(tools)
    formats = []
    for name in names:
        if name not in NAMES:
            raise ValueError(f"unknown call format {name!r}; known: {', '.join(NAMES)}")
        if name != INLINE:
            formats.append(TURN_FORMATS[name])
        elif tools:
            formats.append(inline_format(tools))
    return tuple(formats)


def detect(chat_template: str) -> tuple[str, ...]:
    """Tell from a model's chat template which formats its calls have; empty if none is known."""
    found = []
    if "<tool_call>" in chat_template:
        found.append(HERMES.name)
    elif "[TOOL_CALLS]" in chat_template:
        found.append(MISTRAL.name)
    elif "<|python_tag|>" in chat_template or '"parameters": dictionary of' in chat_template:
        found.append(LLAMA3_JSON.name)
    if INLINE_CLOSE in chat_template:
        found.append(INLINE)
    return tuple(found)
