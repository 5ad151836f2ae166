"""Parser for formats without a row: vLLM's whole-text parser decides once the turn has ended."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.engine.adapters import ParserEngineToolAdapter
from vllm.parser.engine.parser_engine import ParserEngine
from vllm.parser.engine.parser_engine_config import ParserEngineConfig
from vllm.tool_parsers import ToolParser, ToolParserManager

from caesura.intercept.calls.events import Event, TextDelta
from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.markers import first_hit, held_back, unmarked
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing.argument_types import with_types
from caesura.scheduler.vllm.client.parsing.calls import CallEvents, Found, json_of
from caesura.scheduler.vllm.client.parsing.turn import TurnParser

_SHAPE = "arguments that are a JSON object"


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


def _written(text: str) -> str:
    return unmarked(text.encode()).decode()


def _request(tools: Sequence[ToolSpec]) -> ChatCompletionRequest:
    """Return the request that vLLM's parsers read the types of arguments from."""
    typed = []
    for tool in tools:
        parameters = with_types(tool["function"].get("parameters"))
        typed.append({**tool, "function": {**tool["function"], "parameters": parameters}})
    return ChatCompletionRequest(messages=[{"role": "user", "content": ""}], tools=typed or None)
