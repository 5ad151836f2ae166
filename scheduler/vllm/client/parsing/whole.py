"""Parsers of turns in which no marker tells the begin and the end of a call within text.

A turn holds calls from its first character or none (`WholeTurn`), or has channels, as those of
gpt-oss (`HarmonyTurn`). Of a format without a row, vLLM's parser reads the ended turn
(`EndedTurn`).
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.engine.adapters import ParserEngineToolAdapter
from vllm.parser.engine.parser_engine import ParserEngine
from vllm.parser.engine.parser_engine_config import ParserEngineConfig
from vllm.tool_parsers import ToolParser, ToolParserManager

from caesura.intercept.calls.events import Event, ReasoningDelta, TextDelta
from caesura.intercept.calls.formats import HARMONY, LLAMA3_JSON, CallFormat
from caesura.intercept.calls.markers import first_hit, held_back, unmarked
from caesura.intercept.calls.mentions import TurnBegin
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing.argument_types import with_types
from caesura.scheduler.vllm.client.parsing.calls import (
    UNCLOSED,
    UNREADABLE,
    CallEvents,
    Found,
    Piece,
    TurnParser,
    json_of,
    name_in,
)
from caesura.scheduler.vllm.client.parsing.reading import Announcer, CallReader

_DECODER = json.JSONDecoder()
_NEXT = re.compile(r"\s*;\s*(?=\{)")
_SHAPE = "arguments that are a JSON object"


class WholeTurn(TurnParser):
    """Parses one turn; text that begins like a call but cannot be parsed as one is prose."""

    def __init__(self, form: CallFormat, reader: CallReader, tools: Collection[str] = ()) -> None:
        """Create a parser; `tools` are the names on offer, and without any all names count."""
        self._form = form
        self._reader = reader
        self._tools = tools
        self._turn_begin = TurnBegin([form], tools)
        self._begin()

    def _begin(self) -> None:
        """Reset the state to before the first text, which decides between calls and prose."""
        self._events = CallEvents(self._form.shape, verbatim=False)
        self._announcer = Announcer(self._form, self._reader)
        self._text = ""
        self._prose: bool | None = None

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that further text belongs to it."""
        return self._prose is False

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""
        if self._prose is None:
            self._text += text
            begins_call = self._turn_begin.is_call(self._text.encode())
            if begins_call is None:
                return
            text, self._text = self._text, ""
            self._prose = not begins_call
            text = text if self._prose else text.lstrip()
        if self._prose:
            yield TextDelta(text)
        else:
            self._text += text
            yield from self._events.announce(self._announcer.push(text))

    def end(self) -> Iterator[Event]:
        """End the turn: finish its calls, or yield its text."""
        text, self._text = self._text, ""
        found = self._reader.read(text) if self._prose is False else []
        if text.startswith("{") and self._tools:
            # The name of a tool may stand behind its arguments, where nothing was announced.
            found = found if any(call.name in self._tools for call in found) else []
        if found or self._events.announced:
            yield from self._events.settle(found, text)
            if found and self._form is LLAMA3_JSON and (rest := _behind_calls(text)):
                yield TextDelta(rest)
        elif self._prose is False and re.match(self._form.telling, text):
            yield self._events.malformed(text, name_in(text, self._form.named))
        elif text:
            yield TextDelta(text)
        self._begin()


def _behind_calls(text: str) -> str:
    """Return the text behind JSON calls with `;` between them, or nothing if it is blank."""
    at = text.find("{")
    try:
        while True:
            _, end = _DECODER.raw_decode(text, at)
            if (further := _NEXT.match(text, end)) is None:
                break
            at = further.end()
    except (ValueError, RecursionError):
        return ""
    return text[end:] if text[end:].strip() else ""


class HarmonyTurn(TurnParser):
    """Parses one turn from token ids: the answer and preambles are text, the analysis reasoning."""

    def __init__(self, tokenizer: Any, *, reads_calls: bool = True) -> None:
        """Create a parser; unless it `reads_calls`, what a call holds is text.

        Raises `ValueError` if the vocabulary is missing or does not fit.
        """
        # A late import, since it loads the grammar library, which no other format needs.
        from vllm.entrypoints.openai.parser import harmony_utils
        from vllm.parser.harmony import HarmonyParser

        try:
            calls = harmony_utils.get_encoding().encode("<|call|>", allowed_special="all")
        except Exception as error:
            raise ValueError(f"the vocabulary of gpt-oss cannot be loaded: {error}") from error
        if tokenizer.convert_tokens_to_ids("<|call|>") != calls[0]:
            raise ValueError("the model does not write harmony calls: its tokens differ")
        self._reads_calls = reads_calls
        self._is_function = harmony_utils.is_function_recipient
        self._name = harmony_utils.extract_function_from_recipient
        self._parser = HarmonyParser(tokenizer)
        self._return = tokenizer.convert_tokens_to_ids("<|return|>")
        self._events = CallEvents(HARMONY.shape, verbatim=False)

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""
        # The token that ends a turn also ends its message, but it does not close a call.
        ids = [token_id for token_id in token_ids if token_id != self._return]
        for segment in self._parser.process_chunk(ids).segments:
            yield from self._read(segment)

    def end(self) -> Iterator[Event]:
        """End the turn: refuse a call that is still open."""
        for segment in self._parser.flush():
            yield from self._read(segment, closed=False)

    def _read(self, segment: Any, closed: bool = True) -> Iterator[Event]:
        message = segment.completed_message
        channel, recipient = segment.channel, segment.recipient
        if message is not None:
            channel, recipient = message.channel, message.recipient
        if recipient is not None and not self._reads_calls:
            if segment.delta:
                yield TextDelta(segment.delta)
        elif recipient is not None and self._is_function(recipient):
            name = self._name(recipient)
            if message is None:
                yield from self._events.announce([Piece(0, name, segment.delta)])
            else:
                text = "".join(part.text for part in message.content)
                yield from self._settle(name, text, closed)
        elif recipient is not None and message is not None:
            # This is a call of a built-in tool of gpt-oss, for which the engine has paused.
            text = "".join(part.text for part in message.content)
            yield self._events.malformed(text, recipient, f"there is no tool {recipient!r} here")
        elif segment.delta and (channel == "final" or (channel == "commentary" and not recipient)):
            yield TextDelta(segment.delta)
        elif segment.delta and channel == "analysis" and not recipient:
            self.reasoning_tokens += 1  # a segment is what one token adds
            yield ReasoningDelta(segment.delta)

    def _settle(self, name: str, text: str, closed: bool) -> Iterator[Event]:
        whole = text if text.strip() else "{}"
        readable = closed and isinstance(json_of(whole), dict)
        found = [Found(name, whole)] if readable else []
        reason = UNREADABLE if closed else UNCLOSED
        if found or self._events.announced:
            yield from self._events.settle(found, text, reason)
        else:
            yield self._events.malformed(text, name, reason)


class EndedTurn(TurnParser):
    """Parses one turn: text before the first opener at once, and all else when the turn ends.

    Text in which vLLM's parser finds no call is the model's answer.
    """

    def __init__(self, form: CallFormat, tokenizer: Any, tools: Sequence[ToolSpec]) -> None:
        """Create a parser; raise `ValueError` if vLLM's parser refuses the model."""
        assert form.parser is not None
        self._form = form
        self._tokenizer = tokenizer
        self._requests = [_request(tools)]
        if tools:
            # Some parsers drop calls of unknown tools, which must be reported to the model.
            self._requests.append(_request(()))
        self._class = for_whole_turns(ToolParserManager.get_tool_parser(form.parser))
        self._openers = [text.encode() for text in form.opens]
        self._shown = ""
        self._window = b""
        self._opened = False
        try:
            self._class(tokenizer, self._requests[0].tools)
        except Exception as error:  # plugins may raise anything
            raise ValueError(
                f"vLLM's tool parser {form.parser!r} does not fit the model: {error}"
            ) from error

    @property
    def in_call(self) -> bool:
        """Whether an opener has been seen, so that further text belongs to the calls."""
        return self._opened

    @property
    def held_characters(self) -> int:
        """How many characters of the turn `end` reads at once, or a few more."""
        return len(self._shown) + len(self._window) if self._window else 0

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its text up to the first opener."""
        self._window += text.encode()
        if self._opened or self._form.opens_anywhere:
            return
        hit = first_hit(self._window, self._openers)
        ready = len(self._window) - held_back(self._window, self._openers)
        ready = ready if hit is None else hit.start
        self._opened = hit is not None
        shown, self._window = self._window[:ready].decode(), self._window[ready:]
        self._shown += shown
        if shown:
            yield TextDelta(_written(shown))

    def end(self) -> Iterator[Event]:
        """End the turn: yield its calls, and the text that has not been shown."""
        # Marks stay in the text before the calls, where the parser must not find a spelled opener.
        held, self._window = unmarked(self._window).decode(), b""
        shown, self._shown, self._opened = self._shown, "", False
        if not held:
            return
        found, content = self._read(shown + held)
        if not found:
            # Where the parser alone knows the markers, it also knows which of them are no text.
            text = content if self._form.opens_anywhere and content.strip() else held
            yield TextDelta(text)
            return
        if text := self._unseen(content, shown):
            yield TextDelta(_written(text))
        events = CallEvents(_SHAPE, verbatim=False)
        for call in found:
            if isinstance(json_of(call.arguments), dict):
                yield from events.settle([call], held)
            else:
                yield events.malformed(held, call.name)

    def _unseen(self, content: str, shown: str) -> str:
        """Return the text around the calls, as the parser reports it, without what was shown."""
        if not shown:
            return content if content.strip() else ""
        content, before = content.strip(), shown.strip()
        if not content.startswith(before) or any(each in content for each in self._form.opens):
            return ""
        return content[len(before) :]

    def _read(self, text: str) -> tuple[list[Found], str]:
        """Return the calls that vLLM's parser finds in a whole turn, and the text around them."""
        content = ""
        for request in self._requests:
            try:
                info = self._class(self._tokenizer, request.tools).extract_tool_calls(text, request)
            except Exception:
                # vLLM's parsers raise many classes of errors for text that they do not expect.
                continue
            functions = [call.function for call in info.tool_calls]
            found = [Found(each.name, each.arguments or "{}") for each in functions if each.name]
            if found:
                return found, info.content or ""
            content = content or info.content or ""
        return [], content


class _WholeTurnEngine(ParserEngine):
    """vLLM's parser engine without the pieces of arguments that it makes for streams.

    It reads all arguments again for each piece, which takes quadratic time: minutes for 100 kB.
    """

    def __init__(
        self, *given: Any, parser_engine_config: ParserEngineConfig, **options: Any
    ) -> None:
        """Create it; the parameters are those of `ParserEngine`."""
        whole = replace(parser_engine_config, stream_arg_deltas=False)
        super().__init__(*given, parser_engine_config=whole, **options)


@cache
def for_whole_turns(parser: type[ToolParser]) -> type[ToolParser]:
    """Return the class of vLLM's tool parser as it reads whole turns, with the same results."""
    if not issubclass(parser, ParserEngineToolAdapter):
        return parser
    # `_WholeTurnEngine` stands between the model's engine and `ParserEngine` in the order of bases.
    engine = parser._parser_engine_cls
    whole = type(engine.__name__, (engine, _WholeTurnEngine), {})
    return type(parser.__name__, (parser,), {"_parser_engine_cls": whole})


def _written(text: str) -> str:
    return unmarked(text.encode()).decode()


def _request(tools: Sequence[ToolSpec]) -> ChatCompletionRequest:
    """Return the request that vLLM's parsers read the types of arguments from."""
    typed = []
    for tool in tools:
        parameters = with_types(tool["function"].get("parameters"))
        typed.append({**tool, "function": {**tool["function"], "parameters": parameters}})
    return ChatCompletionRequest(messages=[{"role": "user", "content": ""}], tools=typed or None)
