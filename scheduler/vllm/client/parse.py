"""A turn's streamed text to events, by vLLM's own tool parsers.

vLLM's parsers know the families' dialects; what they do not tell is when a call is complete, and
what a broken one was. So their streaming side announces calls and arguments as they come, and
their whole-text side has the last word on each call: at the marker that closes it where the format
has one, at the end of the turn otherwise.
"""

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from caesura.intercept.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.formats import CallFormat
from caesura.scheduler.records import ToolSpec

# Their complaints about text that is no call are answered to the model, not to the log.
logging.getLogger("vllm.tool_parsers").setLevel(logging.CRITICAL)


def new_call_id() -> str:
    """Nine alphanumerical characters, which the strictest chat templates (Mistral's) ask for."""
    return uuid.uuid4().hex[:9]


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str = ""
    streamed: str = ""
    finished: bool = False


class TurnParser:
    """Reads one turn written in one turn-based format."""

    def __init__(self, form: CallFormat, tokenizer: Any, tools: Sequence[ToolSpec]) -> None:
        """`form` must name one of vLLM's parsers. Raises `ValueError` if it refuses the model."""
        assert form.parser is not None
        self._form = form
        self._request = ChatCompletionRequest(
            messages=[{"role": "user", "content": ""}], tools=[dict(tool) for tool in tools] or None
        )
        try:
            parser_class = ToolParserManager.get_tool_parser(form.parser)
            self._new_parser = lambda: parser_class(tokenizer, self._request.tools)
            self._parser = self._new_parser()
        except RuntimeError as error:
            raise ValueError(f"the model does not write {form.name} calls: {error}") from error
        self._text = ""
        self._ids: list[int] = []
        self._calls: list[_Call] = []
        self._closed = 0
        self._scanned = 0
        self._text_sent = 0

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Read more of the turn."""
        before, before_ids = self._text, list(self._ids)
        self._text += text
        self._ids.extend(token_ids)
        delta = self._parser.extract_tool_calls_streaming(
            before, self._text, text, before_ids, self._ids, list(token_ids), self._request
        )
        if delta is not None:
            if delta.content:
                self._text_sent += len(delta.content)
                yield TextDelta(delta.content)
            for piece in delta.tool_calls or ():
                yield from self._stream(piece)
        yield from self._finish_closed()

    def end(self) -> Iterator[Event]:
        """The turn is over: finish what is open, and give back as text what was no call."""
        opened = self._text.find(self._form.opens[0], self._scanned)
        if self._form.closes is not None:
            if opened >= 0:
                yield from self._finish_region(self._text[opened:])
            elif not self._calls and self._text_sent < len(self._text):
                yield TextDelta(self._text[self._text_sent :])
            return
        found = self._extract(self._text)
        for index, (name, arguments) in enumerate(found):
            yield from self._finish(self._call(index), name, arguments)
        yield from self._abandon(len(found))
        if not found and not self._calls and self._text_sent < len(self._text):
            if self._form.certain and opened >= 0:
                yield CallMalformed(new_call_id(), None, self._text, "the call cannot be read")
            else:
                yield TextDelta(self._text[self._text_sent :])

    def _stream(self, piece: Any) -> Iterator[Event]:
        call = self._call(piece.index)
        if call.finished or piece.function is None:
            return
        if piece.function.name and not call.name:
            call.name = piece.function.name
            yield CallStarted(call.call_id, call.name)
        arguments = piece.function.arguments or ""
        if not call.streamed:
            # Cut behind a key, vLLM's Mistral parser takes the colon for part of the arguments.
            arguments = arguments.lstrip(": \t\r\n")
        if arguments and call.name:
            call.streamed += arguments
            yield ArgumentsDelta(call.call_id, arguments)

    def _finish_closed(self) -> Iterator[Event]:
        """Finish each call whose closing marker has arrived."""
        closes = self._form.closes
        while closes is not None:
            end = self._text.find(closes, self._scanned)
            start = self._text.find(self._form.opens[0], self._scanned)
            if end < 0 or start < 0 or start > end:
                return
            self._scanned = end + len(closes)
            yield from self._finish_region(self._text[start : self._scanned])

    def _finish_region(self, region: str) -> Iterator[Event]:
        """Finish the call that one opened and closed region of the text holds."""
        call = self._call(self._closed)
        self._closed += 1
        found = self._extract(region)
        if found:
            yield from self._finish(call, *found[0])
        else:
            yield from self._malform(call, region)

    def _finish(self, call: _Call, name: str, arguments: str) -> Iterator[Event]:
        if call.finished:
            return
        if not call.name:
            call.name = name
            yield CallStarted(call.call_id, name)
        whole = call.streamed if _same_json(call.streamed, arguments) else arguments
        if whole.startswith(call.streamed) and len(whole) > len(call.streamed):
            yield ArgumentsDelta(call.call_id, whole[len(call.streamed) :])
        call.finished = True
        yield CallFinished(call.call_id, call.name, whole)

    def _malform(self, call: _Call, text: str) -> Iterator[Event]:
        call.finished = True
        yield CallMalformed(
            call.call_id,
            call.name or None,
            text,
            'expected one JSON object with "name" and "arguments"',
        )

    def _abandon(self, found: int) -> Iterator[Event]:
        """Calls that the stream announced and the whole text does not confirm are malformed."""
        for call in self._calls[found:]:
            if not call.finished:
                yield from self._malform(call, self._text)

    def _call(self, index: int) -> _Call:
        while len(self._calls) <= index:
            self._calls.append(_Call(new_call_id()))
        return self._calls[index]

    def _extract(self, text: str) -> list[tuple[str, str]]:
        """All calls in a text, as (name, arguments); a fresh parser, since they keep state."""
        calls = self._new_parser().extract_tool_calls(text, self._request).tool_calls
        return [
            (call.function.name, call.function.arguments)
            for call in calls
            if call.function.name and isinstance(_json(call.function.arguments), dict)
        ]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _same_json(one: str, other: str) -> bool:
    value = _json(one)
    return value is not None and value == _json(other)
