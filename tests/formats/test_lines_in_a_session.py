"""A session whose model writes ReAct lines: results are appended as text, the turn goes on."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from caesura.intercept.calls.events import CallFinished, TextDelta, TurnEnded
from caesura.intercept.calls.markers import SpelledOpeners
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.vllm.client.rendering.splice import Splicer
from caesura.scheduler.vllm.client.rendering.threads import RenderThreads
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.scheduler.vllm.wire import REPORT_KEY, WATCH_KEY
from tests.formats.world import stand_in, tool

SAID = ["Thought: sums.\nAction: search\nAction Input: oak trees\n", "Final Answer: oaks"]


class Engine:
    """Stands for vLLM: it says `SAID`, pauses in between, and keeps what it is given."""

    formats = ("react",)
    context_tokens = 1000
    observability_config = SimpleNamespace(otlp_traces_endpoint=None)
    routes = SimpleNamespace(of=lambda *_: None)
    errored = False
    bounded = staticmethod(lambda sampling: sampling)
    adapter = staticmethod(lambda name: None)

    def __init__(self) -> None:
        self.model = stand_in("react")
        self.ends = self.model.ends
        self.llm = self
        self.given: list[str] = []
        self.thinking: tuple[str, ...] = ()
        self.render_threads = RenderThreads()
        self.grammars = SimpleNamespace(of_turn=lambda *_: None)
        self.renderer = SimpleNamespace(
            encode_literal=self.model.spelled,
            count_spelled=lambda messages: len(messages),
            prompt=lambda messages, *_: self.model.spelled(messages[-1]["content"]),
            thinking=lambda tokens: "",
            end_text=lambda token: "<end>" if token in self.ends else "",
        )
        self.splicer = Splicer(self.renderer, self.render_threads, self.context_tokens, None)

    def bytes_of(self, token_id: int) -> bytes:
        return self.model.vocabulary.bytes_of(token_id)

    def token_text(self) -> None:
        return None

    def spelled_openers(self, formats: Any) -> SpelledOpeners:
        return SpelledOpeners(formats, None)

    def turn_parser(self, tools: Any) -> None:
        return None

    def sampling_params(self, sampling: Any, max_tokens: int, watch: Any, grammar: Any) -> Any:
        assert watch[WATCH_KEY]["formats"] == ["react"]
        return None

    async def generate(self, chunks: AsyncIterator[Any], params: Any, id_: str, **_: Any) -> Any:
        said = iter(SAID)
        async for chunk in chunks:
            ids = chunk.prompt["prompt_token_ids"]
            self.given.append("".join(self.model.vocabulary.bytes_of(i).decode() for i in ids))
            text = next(said)
            paused = text is SAID[0]
            tokens = self.model.spelled(text) + ([] if paused else [max(self.ends)])
            piece = SimpleNamespace(
                token_ids=tokens, text=text, finish_reason="stop", logprobs=None
            )
            yield SimpleNamespace(
                outputs=[piece],
                kv_transfer_params={REPORT_KEY: {"paused": paused}},
                num_cached_tokens=0,
            )


async def test_the_result_is_an_observation_behind_the_call() -> None:
    engine: Any = Engine()
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
