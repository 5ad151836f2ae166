"""Tool parsers for vLLM's server, for formats that vLLM's own parsers read in quadratic time.

A request with 20 kB of HTML in an argument would stop vLLM's server for half a minute.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
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
