"""The last word on a call: vLLM's parsers over its whole text."""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.tool_parsers.utils import handle_single_tool

from caesura.intercept.formats import PYTHONIC, CallFormat
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing.calls import Found, json_of

_OTHER_MARKERS = ("[ARGS]", "[CALL_ID]", "<think>", "</think>")


class CallReader:
    """Reads calls of one format with vLLM's parser for it."""

    def __init__(self, form: CallFormat, tokenizer: Any, tools: Sequence[ToolSpec]) -> None:
        """`form` must name one of vLLM's parsers. Raises `ValueError` if it refuses the model."""
        assert form.parser is not None
        self._form = form
        self.tokenizer = tokenizer
        self._request = _request(tools) if form.inner is not None else _bare_request()
        self._names = {tool["function"]["name"] for tool in tools}
        self._class = ToolParserManager.get_tool_parser(form.parser)
        try:
            self.new_parser(None)
        except RuntimeError as error:
            raise ValueError(f"the model does not write {form.name} calls: {error}") from error

    def new_parser(self, name: str | None) -> tuple[ToolParser, ChatCompletionRequest]:
        """Return a fresh parser, since they keep state, and the request that it is to be given.

        `name` is the called tool's, if it is known. Schemas are for formats whose values have no
        types of their own; elsewhere some parsers would change by them what the model has written.
        Calls of tools that are not on offer would be dropped where the model has to be told.
        """
        known = name is None or name in self._names
        request = self._request if known else _bare_request()
        return self._class(self.tokenizer, request.tools), request

    def name_in(self, text: str) -> str | None:
        """Return the tool's name in the text of a call, if it shows."""
        found = re.search(self._form.named, text)
        return next((name for name in found.groups() if name), None) if found else None

    def read(self, text: str) -> list[Found]:
        """Return all calls in a text that opens one; empty if it is malformed."""
        before, behind = self._form.section
        hidden = self._hide(text)
        if hidden is None:
            return []
        parser, request = self.new_parser(self.name_in(text))
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

    def _hide(self, text: str) -> "_Hidden | None":
        """Hide from the parser what it would stumble over; None if the call is broken."""
        if self._form.body == "json":
            return _without_json(text, self._form)
        return _Hidden(text) if self._form.inner is None else _without_markers(text, self._form)


def _request(tools: Sequence[ToolSpec]) -> ChatCompletionRequest:
    given = [dict(tool) for tool in tools] or None
    return ChatCompletionRequest(messages=[{"role": "user", "content": ""}], tools=given)


@cache
def _bare_request() -> ChatCompletionRequest:
    """A request without tools; making one takes longer than a parser does, and each turn asks."""
    return _request(())


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The text of a call for a parser, with something else in the place of some of it."""

    text: str
    arguments: str | None = None
    """What `{}` stands for."""
    stand_in: str = ""
    """What stands for `<`."""

    def restore(self, arguments: str) -> str:
        """Return the arguments that a parser has read as they were."""
        if self.arguments is not None and arguments.strip() == "{}":
            return self.arguments
        return arguments.replace(self.stand_in, "<") if self.stand_in else arguments


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
        return _Hidden(f"{text[:start]}{{}}{text[end:]}", plain)
    for marker in ("<", opener, *_OTHER_MARKERS[:2]):
        plain = plain.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return _Hidden(text[:start] + plain + text[end:])


def _without_markers(text: str, form: CallFormat) -> _Hidden | None:
    """Hide the format's markers where they are part of a value."""
    assert form.inner is not None
    opener, closer = form.opens[0], form.closes or ""
    end = len(text) - len(closer) if text.endswith(closer) else len(text)
    body, (first, last) = text[len(opener) : end], form.inner
    whole = body.count(first) == body.count(last) and body.rstrip().endswith(last)
    if not whole and (opener in body or closer in body):
        return None
    stand_in = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
    for marker in (opener, closer, *_OTHER_MARKERS):
        body = body.replace(marker, stand_in + marker[1:])
    return _Hidden(f"{opener}{body}{text[end:]}", stand_in=stand_in)


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
