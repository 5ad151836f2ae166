"""Parsers for vLLM's server: of calls in some formats, and of thinking.

vLLM's own parsers read these formats in quadratic time: a request with 20 kB of HTML in an argument
would stop vLLM's server for half a minute. Its parsers of reasoning take what a model says without
thinking for thinking, and the end of an earlier answer's thinking for that of this one's.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal

from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.parser.abstract_parser import DelegatingParser
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.tool_parsers import ToolParser, ToolParserManager

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.calls.formats import GLM, QWEN3_CODER, CallFormat
from caesura.intercept.calls.thinking import REGIONS, open_at_end
from caesura.scheduler.messages import ToolSpec
from caesura.scheduler.vllm.client.parsing import turn_parser


class _LinearToolParser(ToolParser):
    """Reads the calls of one format with Caesura's parser for a turn, one parser per answer."""

    form: CallFormat

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None) -> None:
        super().__init__(tokenizer, tools)
        self._specs = [_spec(each) for each in self.tools]
        self._turn = turn_parser(self.form, tokenizer, self._specs)
        self._places: dict[str, int] = {}
        """The places of the calls in the answer, by id."""
        self._sent: set[str] = set()
        """Ids of calls of which some arguments were sent."""

    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        """Return the calls of a whole answer, and the text around them."""
        turn = turn_parser(self.form, self.model_tokenizer, self._specs)
        text: list[str] = []
        calls: list[ToolCall] = []
        for event in [*turn.push(model_output, ()), *turn.end()]:
            match event:
                case TextDelta() | CallMalformed():
                    text.append(event.text)
                case CallFinished():
                    function = FunctionCall(name=event.name, arguments=event.arguments)
                    calls.append(ToolCall(function=function))
                    self.prev_tool_call_arr.append(function.model_dump())
                case _:
                    pass
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content="".join(text) or None
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> DeltaMessage | None:
        """Return what a piece of the answer adds, or None if that is nothing yet."""
        return self._delta(self._turn.push(delta_text, delta_token_ids))

    def _delta(self, events: Iterable[Event]) -> DeltaMessage | None:
        text: list[str] = []
        calls: list[DeltaToolCall] = []
        for event in events:
            match event:
                case TextDelta():
                    text.append(event.text)
                case CallStarted():
                    calls.append(self._open(event.name, event.call_id))
                case ArgumentsDelta():
                    calls.append(self._extend(event.call_id, event.text))
                case CallFinished():
                    calls += self._finish(event)
                case CallMalformed() if event.call_id not in self._places:
                    text.append(event.text)
                case _:
                    pass
        if not text and not calls:
            return None
        return DeltaMessage(content="".join(text) or None, tool_calls=calls)

    def _finish(self, call: CallFinished) -> Iterator[DeltaToolCall]:
        if call.call_id not in self._places:
            yield self._open(call.name, call.call_id)
        if call.call_id not in self._sent:
            yield self._extend(call.call_id, call.arguments)

    def _open(self, name: str, call_id: str) -> DeltaToolCall:
        place = self._places[call_id] = len(self._places)
        # vLLM's server asks these two lists whether the answer holds calls, and what is unsent.
        self.prev_tool_call_arr.append({"name": name, "arguments": ""})
        self.streamed_args_for_tool.append("")
        function = DeltaFunctionCall(name=name, arguments="")
        return DeltaToolCall(index=place, type="function", id=call_id, function=function)

    def _extend(self, call_id: str, text: str) -> DeltaToolCall:
        self._sent.add(call_id)
        place = self._places[call_id]
        self.streamed_args_for_tool[place] += text
        self.prev_tool_call_arr[place]["arguments"] += text
        return DeltaToolCall(index=place, function=DeltaFunctionCall(arguments=text))


class Qwen3CoderToolParser(_LinearToolParser):
    """Reads `<tool_call><function=...>` calls."""

    form = QWEN3_CODER
    structural_tag_model = "qwen_3_coder"


class GlmToolParser(_LinearToolParser):
    """Reads `<tool_call>name<arg_key>...` calls."""

    form = GLM
    structural_tag_model = "glm_4_7"


PARSERS = {QWEN3_CODER.name: "caesura_qwen3_coder", GLM.name: "caesura_glm"}
"""The names under which vLLM knows these parsers, by format."""


def register() -> None:
    """Make the parsers known to vLLM. Idempotent."""
    for made in (Qwen3CoderToolParser, GlmToolParser):
        ToolParserManager.register_module(PARSERS[made.form.name], module=made)


MAX_OPENER_TOKENS = 64
"""The most tokens of an opener at the end of a prompt, with the spaces behind it."""
_OPENED: ContextVar[str | None] = ContextVar("caesura_opened", default=None)
"""The opener at the end of the request's prompt, or None while that is not known.

vLLM's server tells it the first of several answers, and none whose thinking is hidden.
"""
_CONSTRAINED: ContextVar[bool] = ContextVar("caesura_constrained", default=False)
"""Whether a grammar holds from the first token of the request's answer."""


class _ThinkingParser(ReasoningParser):
    """Tells the region of thinking apart with which an answer begins, if it does.

    It begins within a region if the prompt ends with an opener. White space around thinking is
    shown nowhere.
    """

    openers: tuple[str, ...] = ()

    def __init__(self, tokenizer: Any, *args: Any, **settings: Any) -> None:
        super().__init__(tokenizer, *args, **settings)
        self._opener = ""
        self._held = ""
        self._thought = False
        """Whether some thinking was shown."""
        self._place: Literal["begin", "inside", "behind", "out"] = "begin"

    def adjust_request(self, request: Any) -> Any:
        """Note whether a grammar lets the model end a thought that the prompt has opened."""
        _CONSTRAINED.set(_is_constrained(request))
        return request

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Return whether the answer to a prompt holds no thinking; note how it begins."""
        opener = open_at_end(self.model_tokenizer.decode(list(input_ids[-MAX_OPENER_TOKENS:])))
        opener = opener if opener in self.openers else ""
        _OPENED.set(opener)
        if opener and _CONSTRAINED.get():
            self._place = "out"
        elif opener:
            self._opener, self._place = opener, "inside"
        return self._place == "out"

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int]
    ) -> bool:
        """Return whether the answer's text has begun."""
        return self._place == "out"

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """Return the tokens of a piece that ends the thinking, behind the closer's."""
        closer = self.vocab.get(REGIONS.get(self._opener, ""))
        behind = input_ids.index(closer) + 1 if closer in input_ids else 0
        return input_ids[behind:]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many of an answer's tokens are thinking; markers are none."""
        opener, begin = self._opener or _OPENED.get(), 0
        text = ""
        for at, token in enumerate(token_ids):
            text += self.model_tokenizer.decode([token])
            if not opener:
                opener = next((each for each in self.openers if text.lstrip() == each), "")
                begin = at + 1 if opener else 0
                if not opener and not self._may_open(text):
                    return 0
            elif REGIONS[opener] in text[-MAX_MARKER_CHARACTERS:]:
                return self._before_closer(token_ids[begin : at + 1], REGIONS[opener])
        return len(token_ids) - begin if opener else 0

    def _before_closer(self, token_ids: Sequence[int], closer: str) -> int:
        """Return how many tokens there are before those that end with the closer."""
        text = ""
        for count, token in enumerate(reversed(token_ids), 1):
            text = self.model_tokenizer.decode([token]) + text
            if closer in text:
                return len(token_ids) - count
        return 0

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """Return the thinking and the text of a whole answer, each None if there is none."""
        opener = self._opener or _OPENED.get()
        text = model_output
        if opener and _is_constrained(request):
            return None, model_output
        if opener is None:
            opener = self._opened_before(text)
        if not opener:
            text = model_output.lstrip()
            opener = next((each for each in self.openers if text.startswith(each)), "")
            text = text.removeprefix(opener)
        if not opener:
            return None, model_output
        thought, _, text = text.partition(REGIONS[opener])
        return thought.strip() or None, text.lstrip() or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """Return what a piece adds to the thinking, and the begin of the text behind it."""
        self._held += delta_text
        thought = ""
        if self._place == "begin":
            self._begin()
        if self._place == "inside":
            thought = self._think()
        if self._place == "behind" and (text := self._held.lstrip()):
            self._held, self._place = text, "out"
        text = ""
        if self._place == "out":
            text, self._held = self._held, ""
        if not thought and not text:
            return None
        return DeltaMessage(reasoning=thought or None, content=text or None)

    def get_streaming_fallback_content(self, text: str, request: Any) -> str:
        """Return what was held back at the end of an answer that may still have begun a region."""
        return self._held if self._place == "begin" else ""

    def _opened_before(self, text: str) -> str:
        """Return the opener before a text that begins within thinking, by its first marker."""
        first = {text.find(REGIONS[each]): each for each in self.openers if REGIONS[each] in text}
        opener = first[min(first)] if first else ""
        return "" if opener in text.partition(REGIONS.get(opener, "\n"))[0] else opener

    def _begin(self) -> None:
        text = self._held.lstrip()
        self._opener = next((each for each in self.openers if text.startswith(each)), "")
        if self._opener:
            self._held, self._place = text.removeprefix(self._opener), "inside"
        elif not self._may_open(text):
            self._place = "out"

    def _think(self) -> str:
        """Return the thinking that is surely thinking, and hold what may be the closer's begin."""
        closer = REGIONS[self._opener]
        thought, found, behind = self._held.partition(closer)
        if found:
            self._held, self._place = behind, "behind"
            thought = thought.rstrip()
        else:
            sizes = range(min(len(closer) - 1, len(thought)), 0, -1)
            held = next((size for size in sizes if thought.endswith(closer[:size])), 0)
            # White space before it may be that around the thinking.
            kept = thought[: len(thought) - held].rstrip()
            self._held, thought = thought[len(kept) :], kept
        if not self._thought:
            thought = thought.lstrip()
        self._thought = self._thought or bool(thought)
        return thought

    def _may_open(self, text: str) -> bool:
        """Return whether a text may be the begin of an opener."""
        return any(each.startswith(text.lstrip()) for each in self.openers)


MAX_MARKER_CHARACTERS = 2 * max(len(closer) for closer in REGIONS.values())


def _is_constrained(request: Any) -> bool:
    """Return whether a grammar holds from the first token of an answer."""
    form = getattr(request, "response_format", None)
    formed = form is not None and form.type != "text"
    structured = getattr(request, "structured_outputs", None) is not None
    return formed or structured or request.tool_choice not in (None, "none", "auto")


def thinking_parser(openers: Sequence[str]) -> str:
    """Make a parser of reasoning for these regions known to vLLM, and return its name."""
    name = "_".join(["caesura_thinking", *(str(list(REGIONS).index(each)) for each in openers)])
    made = type("ThinkingParser", (_ThinkingParser,), {"openers": tuple(openers)})
    ReasoningParserManager.register_module(name, module=made)
    return name


class _LastTurnParser(ReasoningParser):
    """Lets a parser of vLLM's see no earlier turn of a prompt.

    Many of them look for the last marker in the prompt. Where that holds the thinking of earlier
    answers, they would take the end of it for that of the answer's own.
    """

    ends: frozenset[int] = frozenset()
    """The tokens that end a turn."""

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Return whether the thinking has ended, in a prompt's last turn or in an answer."""
        return bool(super().is_reasoning_end(self._of_last(input_ids)))

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        """Let the parser begin where the last turn of a prompt ends."""
        super().adjust_initial_state_from_prompt(self._of_last(prompt_token_ids))

    def _of_last(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens behind the last end of a turn; that of an answer is its last token."""
        backwards = range(len(tokens) - 2, -1, -1)
        end = next((at for at in backwards if tokens[at] in self.ends), -1)
        return list(tokens[end + 1 :])


def parser_of_last_turn(name: str, ends: frozenset[int]) -> str | None:
    """Make vLLM's parser of reasoning `name` known as one that sees no earlier turns.

    Returns the name of that one, or None where vLLM chooses how to read answers by the parser's
    name.
    """
    composed = ParserManager.get_parser(reasoning_parser_name=name)
    if composed is None or DelegatingParser not in composed.__bases__:
        return None
    own = f"caesura_last_turn_{name}"
    bases = (_LastTurnParser, ReasoningParserManager.get_reasoning_parser(name))
    made = type("LastTurnParser", bases, {"ends": ends})
    ReasoningParserManager.register_module(own, module=made)
    return own


def _spec(tool: Any) -> ToolSpec:
    function = getattr(tool, "function", tool)
    return {
        "type": "function",
        "function": {
            "name": function.name,
            "description": function.description or "",
            "parameters": function.parameters or {"type": "object", "properties": {}},
        },
    }
