"""A session whose model writes ReAct lines: results are appended as text, the turn goes on."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from caesura.intercept.calls.events import CallFinished, TextDelta, TurnEnded
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.scheduler.vllm.wire import WATCH_KEY
from tests.formats.speaking import Engine
from tests.formats.world import tool
from tests.kit.host import output

SAID = ["Thought: sums.\nAction: search\nAction Input: oak trees\n", "Final Answer: oaks"]


class Lines(Engine):
    """It says `SAID`, pauses in between, and keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("react", (), "stop")
        self.given: list[str] = []

    def renderer(self) -> Any:
        return SimpleNamespace(
            encode_literal=self.model.spelled,
            count_spelled=lambda messages: len(messages),
            prompt=lambda messages, *_: self.model.spelled(messages[-1]["content"]),
            thinking=lambda tokens: "",
        )

    def params(
        self, sampling: Sampling, max_tokens: int, given_args: Any, grammar: Any = None
    ) -> Any:
        assert given_args[WATCH_KEY]["formats"] == ["react"]
        return super().params(sampling, max_tokens, given_args, grammar)

    async def generate(self, chunks: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        said = iter(SAID)
        async for chunk in chunks:
            self.given.append(self.text_of(chunk.prompt["prompt_token_ids"]))
            text = next(said)
            paused = text is SAID[0]
            ends = [] if paused else [max(self.model.ends)]
            yield output([*self.model.spelled(text), *ends], "stop", text, {"paused": paused})


async def test_the_result_is_an_observation_behind_the_call() -> None:
    engine = Lines()
    session = VllmSession(engine, SessionSpec((tool("search", query={"type": "string"}),)))
    first = [event async for event in session.turn([{"role": "user", "content": "Trees?"}])]
    call = next(event for event in first if isinstance(event, CallFinished))
    assert (call.name, call.arguments) == ("search", '{"query": "oak trees"}')
    assert isinstance(first[-1], TurnEnded)
    assert (first[-1].reason, first[-1].spelled_tokens) == ("call", 1)
    result = {"role": "tool", "tool_call_id": call.call_id, "content": "tall"}
    second = [event async for event in session.turn([result])]
    assert engine.given == ["Trees?", "\nObservation: tall\n"]
    assert second[-1].reason == "stop"  # type: ignore[union-attr]
    shown = [event.text for event in [*first, *second] if isinstance(event, TextDelta)]
    assert "".join(shown) == "Thought: sums.\nFinal Answer: oaks"
    assert session._reader is not None
    assert session._reader.message()["content"] == f"{SAID[0]}Observation: tall\n{SAID[1]}"
    await session.close()
