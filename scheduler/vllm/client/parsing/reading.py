"""Calls by vLLM's tool parsers: complete ones are read, and those being written are announced.

An announcement is limited to what is certain.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParser, ToolParserManager
from vllm.tool_parsers.utils import handle_single_tool

from caesura.intercept.calls.call_body import JsonText
from caesura.intercept.calls.formats import PYTHONIC, CallFormat
from caesura.intercept.calls.inline import python_expression
from caesura.intercept.calls.markers import first_hit, held_back
from caesura.scheduler.vllm.client.parsing.calls import UNREADABLE, Found, Piece, json_of, name_in

_CALL_ID = re.compile(r"\[CALL_ID\][^\[]*")
_MISTRALS_MARKERS = ("[ARGS]", "[CALL_ID]")
MAX_CHARACTERS = 2048
"""A call whose head is longer is not announced. The announcement of a call by vLLM's parsers ends
at this length, since they parse the whole text again at each token."""


class CallReader:
    """Parses calls of one format with vLLM's parser for it."""

    def __init__(self, form: CallFormat, tokenizer: Any) -> None:
        """Create a reader; `form` must name one of vLLM's parsers.

        Raises `ValueError` if the parser refuses the model.
        """
        assert form.parser is not None
        self._form = form
        self.tokenizer = tokenizer
        self._class = ToolParserManager.get_tool_parser(form.parser)
        try:
            self.new_parser()
        except RuntimeError as error:
            raise ValueError(f"the model does not write {form.name} calls: {error}") from error

    def new_parser(self) -> tuple[ToolParser, ChatCompletionRequest]:
        """Return a new parser, since parsers keep state, and the request to pass to it.

        The request names no tools. With tools, some parsers change arguments by their schemas and
        drop calls of unknown tools, which must be reported to the model.
        """
        request = _bare_request()
        return self._class(self.tokenizer, request.tools), request

    def read(self, text: str) -> list[Found]:
        """Return all calls in a text that begins with one; empty if the text is malformed."""
        if self._form.keys:
            return _json_calls(text, self._form)
        before, behind = self._form.section
        hidden = _without_json(text, self._form) if self._form.body == "json" else _Hidden(text)
        if hidden is None:
            return []
        parser, request = self.new_parser()
        try:
            calls = parser.extract_tool_calls(f"{before}{hidden.text}{behind}", request).tool_calls
            found = [(call.function.name, call.function.arguments) for call in calls]
        except Exception:
            # vLLM's parsers raise many classes of errors for text that they do not expect.
            found = []
        if self._form is PYTHONIC:
            found = found or _python_calls(text)
        shown = [
            Found(clean_name(name), _unquoted(hidden.restore(given)))
            for name, given in found
            if name
        ]
        return [call for call in shown if isinstance(json_of(call.arguments), dict)]


@cache
def _bare_request() -> ChatCompletionRequest:
    """Return a request without tools, cached since creating one takes longer than parsing."""
    return ChatCompletionRequest(messages=[{"role": "user", "content": ""}])


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The text of a call for a parser, with `{}` in the place of large arguments."""

    text: str
    arguments: str | None = None
    """The arguments that `{}` replaces; None if nothing is replaced."""

    def restore(self, arguments: str) -> str:
        """Return the original of the arguments that a parser found."""
        if self.arguments is None or arguments.strip() != "{}":
            return arguments
        return self.arguments


def _without_json(text: str, form: CallFormat) -> _Hidden | None:
    """Return the call's text without its JSON arguments, or with JSON in one line, without markers.

    JSON that is only the arguments is hidden, since some parsers take quadratic time for it.
    Return None if the JSON is invalid.
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
        # With Mistral's tokenizers, vLLM's parser includes the call's id in the name.
        head = _CALL_ID.sub("", text[:start])
        return _Hidden(f"{head}{{}}{text[end:]}", plain)
    for marker in ("<", opener, *_MISTRALS_MARKERS):
        plain = plain.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return _Hidden(text[:start] + plain + text[end:])


def _json_calls(text: str, form: CallFormat) -> list[Found]:
    """Return the calls of a JSON object or list between markers; all of them, or none.

    A call without arguments has none. vLLM's parsers search for the end with regular expressions,
    which a marker or a bracket within a string misleads.
    """
    opener = next(opener for opener in form.opens if text.startswith(opener))
    inside = text.removeprefix(opener).rstrip().removesuffix(form.closes or "")
    value = json_of(inside)
    found = []
    for call in value if isinstance(value, list) else [value]:
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or not name.strip():
            return []
        given: Any = next((call[key] for key in form.keys if key in call), {})
        arguments = _unquoted(json.dumps(given, ensure_ascii=False))
        if not isinstance(json_of(arguments), dict):
            return []
        found.append(Found(name.strip(), arguments))
    return found


def _unquoted(arguments: str) -> str:
    """Return the arguments, without quotes where the model has written their JSON as a string."""
    value = json_of(arguments)
    return value if isinstance(value, str) else arguments


def clean_name(name: str) -> str:
    """Return the name without a call's id, which Mistral's tokenizers of version 13 append."""
    return name.partition("[CALL_ID]")[0].strip()


def _python_calls(text: str) -> list[tuple[str, str]]:
    """Return the (name, arguments) of pythonic calls that vLLM's pattern refuses.

    The pattern refuses names with dots, and times out on long calls.
    """
    text = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>")
    try:
        tree = python_expression(text.strip())
        calls = tree.elts if isinstance(tree, ast.List) else []
        if not all(isinstance(call, ast.Call) and not call.args for call in calls):
            return []
        read = [handle_single_tool(call).function for call in calls if isinstance(call, ast.Call)]
    except Exception:
        return []
    return [(function.name, function.arguments) for function in read]


class Announcer:
    """Announces the calls of one region of text."""

    def __init__(self, form: CallFormat, reader: CallReader) -> None:
        self._form = form
        self._reader = reader
        self._telling = re.compile(form.telling)
        self._head = ""
        self._follow: Callable[[str], Iterator[Piece]] | None = None
        self._over = False

    def push(self, text: str) -> Iterator[Piece]:
        """Parse more text; yield what is certain of its calls."""
        if self._follow is not None:
            yield from self._follow(text)
        elif not self._over:
            self._head += text
            self._over = len(self._head) > MAX_CHARACTERS
            told = self._telling.match(self._head)
            if told is not None and not self._over:
                yield from self._begin(told)

    def found(self, text: str) -> list[Found]:
        """Return the calls in the complete text; raise `ValueError` if there is none."""
        found = self._reader.read(text)
        if not found:
            raise ValueError(UNREADABLE)
        return found

    def _begin(self, told: re.Match[str]) -> Iterator[Piece]:
        """Announce the call, and choose how to follow its arguments."""
        # The search ends before the arguments, which may hold text that looks like a name.
        name = name_in(told[0], self._form.named)
        start = told.end() - 1
        if name is not None and self._form.body == "json" and self._head[start] == "{":
            yield Piece(0, clean_name(name), "")
            self._follow = _Object(self._form).push
            yield from self._follow(self._head[start:])
        else:
            self._follow = _Streamed(self._form, self._reader, name).push
            yield from self._follow(self._head)


class _Object:
    """Follows the JSON arguments of a text's only call, which end with their object."""

    def __init__(self, form: CallFormat) -> None:
        self._value = JsonText(leading=True)
        # A marker within a call is part of an argument, or the call is malformed. Only the end of
        # the call shows which.
        self._markers = [text.encode() for text in (*form.opens, form.closes) if text]
        self._window = b""
        self._over = False

    def push(self, text: str) -> Iterator[Piece]:
        if self._over:
            return
        self._window += text.encode()
        hit = first_hit(self._window, self._markers)
        ready = len(self._window) - held_back(self._window, self._markers)
        data = self._window[: ready if hit is None else hit.start]
        self._window = self._window[len(data) :]
        end = self._value.feed(data)
        self._over = hit is not None or end is not None
        if data[:end]:
            yield Piece(0, "", data[:end].decode())


class _Streamed:
    """Follows calls with vLLM's streaming parser for the format."""

    def __init__(self, form: CallFormat, reader: CallReader, name: str | None) -> None:
        self._reader = reader
        self._name = name
        self._parser, self._request = reader.new_parser()
        self._opener = form.opens[0] if form.opens else None
        self._begins = form.section[0]
        self._read = ""
        self._ids: list[int] = []
        self._over = False
        self._arguments: dict[int, JsonText] = {}

    def push(self, text: str) -> Iterator[Piece]:
        if self._over:
            return
        before, before_ids = self._read, self._ids
        text, self._begins = self._begins + text, ""
        self._read += text
        opener = self._opener
        again = opener is not None and self._read.count(opener) > 1
        self._over = again or len(self._read) > MAX_CHARACTERS
        if self._over:
            return
        # The decoded ids do not fit, since the text may begin and end within a token.
        ids = self._reader.tokenizer.encode(text, add_special_tokens=False)
        self._ids = before_ids + ids
        try:
            delta = self._parser.extract_tool_calls_streaming(
                before, self._read, text, before_ids, self._ids, ids, self._request
            )
        except Exception:
            # vLLM's parsers raise many classes of errors for text that they do not expect.
            self._over = True
            return
        yield from self._pieces(delta)

    def _pieces(self, delta: Any) -> Iterator[Piece]:
        for call in (delta.tool_calls if delta is not None else None) or ():
            if call.function is None or self._over:
                continue
            name = clean_name(call.function.name or "")
            # Some parsers take a marker for text if the model wrote it with other tokens.
            self._over = bool(name and call.index == 0 and name != self._name)
            arguments = self._new_arguments(call.index, call.function.arguments or "")
            if not self._over and (name or arguments):
                yield Piece(call.index, name, arguments)

    def _new_arguments(self, index: int, arguments: str) -> str:
        """Return the part of the arguments within their object; some parsers add text after it."""
        value = self._arguments.setdefault(index, JsonText(leading=True))
        if not value.begun:
            arguments = arguments.lstrip(": \t\r\n")
        data = b"" if value.done else arguments.encode()
        end = value.feed(data)
        return data[:end].decode() if value.begun else ""
