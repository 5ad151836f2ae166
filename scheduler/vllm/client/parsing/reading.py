"""The last word on a call: vLLM's parsers over its whole text."""

import ast
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.tool_parsers.utils import handle_single_tool

from caesura.intercept.calls.formats import PYTHONIC, CallFormat
from caesura.scheduler.vllm.client.parsing.calls import Found, json_of

_CALL_ID = re.compile(r"\[CALL_ID\][^\[]*")
_MISTRALS_MARKERS = ("[ARGS]", "[CALL_ID]")


class CallReader:
    """Reads calls of one format with vLLM's parser for it."""

    def __init__(self, form: CallFormat, tokenizer: Any) -> None:
        """`form` must name one of vLLM's parsers. Raises `ValueError` if it refuses the model."""
        assert form.parser is not None
        self._form = form
        self.tokenizer = tokenizer
        self._class = ToolParserManager.get_tool_parser(form.parser)
        try:
            self.new_parser()
        except RuntimeError as error:
            raise ValueError(f"the model does not write {form.name} calls: {error}") from error

    def new_parser(self) -> tuple[ToolParser, ChatCompletionRequest]:
        """Return a fresh parser, since they keep state, and the request that it is to be given.

        The request names no tools: some parsers would change by their schemas what the model has
        written, and would drop calls of tools that are not on offer, of which it has to be told.
        """
        request = _bare_request()
        return self._class(self.tokenizer, request.tools), request

    def read(self, text: str) -> list[Found]:
        """Return all calls in a text that opens one; empty if it is malformed."""
        before, behind = self._form.section
        hidden = _without_json(text, self._form) if self._form.body == "json" else _Hidden(text)
        if hidden is None:
            return []
        parser, request = self.new_parser()
        try:
            calls = parser.extract_tool_calls(f"{before}{hidden.text}{behind}", request).tool_calls
            found = [(call.function.name, call.function.arguments) for call in calls]
        except Exception:
            # They are written for one family's habits, and raise whatever they meet.
            found = []
        if self._form is PYTHONIC:
            found = found or _python_calls(text)
        shown = [Found(clean_name(name), hidden.restore(given)) for name, given in found if name]
        return [call for call in shown if isinstance(json_of(call.arguments), dict)]


@cache
def _bare_request() -> ChatCompletionRequest:
    """A request without tools; making one takes longer than a parser does, and each turn asks."""
    return ChatCompletionRequest(messages=[{"role": "user", "content": ""}])


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The text of a call for a parser, with something else in the place of some of it."""

    text: str
    arguments: str | None = None
    """What `{}` stands for."""

    def restore(self, arguments: str) -> str:
        """Return the arguments that a parser has read as they were."""
        if self.arguments is None or arguments.strip() != "{}":
            return arguments
        return self.arguments


def _without_json(text: str, form: CallFormat) -> _Hidden | None:
    """Hide the JSON of a call, or write it in one line and without markers.

    Where it is the arguments alone, the parser need not see it: some take quadratic time over it.
    """
    opener = form.opens[0]
    start = text.find("{")
    if text[len(opener) :].lstrip().startswith("["):
        start = text.find("[", len(opener))
    try:
        value, end = json.JSONDecoder().raw_decode(text, max(start, 0))
        plain = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    if text[len(opener) : start].strip():
        # With Mistral's own tokenizers vLLM's parser takes the call's id for a part of the name.
        head = _CALL_ID.sub("", text[:start])
        return _Hidden(f"{head}{{}}{text[end:]}", plain)
    for marker in ("<", opener, *_MISTRALS_MARKERS):
        plain = plain.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return _Hidden(text[:start] + plain + text[end:])


def clean_name(name: str) -> str:
    """Cut a call's id off its name: Mistral's tokenizers of version 13 write it there."""
    return name.partition("[CALL_ID]")[0].strip()


def _python_calls(text: str) -> list[tuple[str, str]]:
    """Read calls that vLLM's pattern refuses: names with dots, and what it takes too long for."""
    text = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        calls = tree.elts if isinstance(tree, ast.List) else []
        if not all(isinstance(call, ast.Call) and not call.args for call in calls):
            return []
        read = [handle_single_tool(call).function for call in calls if isinstance(call, ast.Call)]
    except Exception:
        return []
    return [(function.name, function.arguments) for function in read]
