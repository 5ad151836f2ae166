"""A stand-in for the splicing of chat completions, and answers of vLLM's application."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from caesura.intercept.calls.events import FollowUpReport
from caesura.scheduler.answers import Answers, FollowUp, Missed
from caesura.scheduler.histories import Histories, length_up_to_answer
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import SampledFacts
from caesura.scheduler.vllm_server import TapListener, TokenTap

USER = {"role": "user", "content": "Hello"}
NEXT = {"role": "user", "content": "And now?"}
CALL = {"id": "chatcmpl-tool-1", "type": "function"} | {
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}
}


class Tap:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.prompt = 0
        self.requests = 0
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self.reason: str | None = None
        self.facts = SampledFacts()
        self.listener: TapListener | None = None


class Splicing:
    """A memory as the engine's, whose tokens stand for no text."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.histories = Histories()
        self.fields = {"messages", "tools", "echo", "documents", "return_token_ids"}
        self.rearranges = False
        self.log: list[str] = []
        self.tap = Tap()

    async def follow_up(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> FollowUp | None:
        length = length_up_to_answer(messages)
        if length is None:
            return None
        found = self.answers.find(self.histories.of(messages[:length], spec))
        if isinstance(found, Missed):
            return FollowUp(FollowUpReport("rendered", found.why, field=found.field))
        return FollowUp(FollowUpReport("spliced", "unchanged", len(found)), [*found, 99])

    async def rearranged(
        self, messages: Sequence[Message], spec: SessionSpec, sampling: Sampling
    ) -> Sequence[int] | None:
        late = any(each["role"] == "system" for each in messages[1:])
        return [5, len(messages)] if late else None

    async def remember(self, messages: Sequence[Message], spec: SessionSpec, tap: TokenTap) -> None:
        self.log.append("remembered")
        self.answers.remember(self.histories.of(messages, spec), tap.tokens)

    @contextmanager
    def tapped(self) -> Iterator[Tap]:
        self.tap = Tap()
        yield self.tap


def whole(message: Any, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": None}
    return {"choices": [choice | fields]}


def streamed(*deltas: Any, **fields: Any) -> list[Any]:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"} | fields]})
    return [*chunks, {"choices": [], "usage": {}}, "[DONE]"]
