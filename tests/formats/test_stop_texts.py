"""A stop text within a call, or one that opens a call, ends the turn before it, without a call."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, TextDelta, TurnEnded
from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.loop import run
from caesura.runtime.server.api.chat_answer import Answer
from caesura.scheduler.messages import Sampling, SessionSpec
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools import Dispatcher, Registry
from tests.formats.cases import SEARCH, TOOLS
from tests.formats.rendering import RENDER
from tests.formats.speaking import Engine
from tests.formats.world import Outcome, decode, stand_in

STEPS = [1, 3, 10_000]
WRAPPED = {
    "hermes": "<tool_call>",
    "qwen3_coder": "<tool_call>",
    "glm": "<tool_call>",
    "mistral": "[TOOL_CALLS]",
    "kimi_k2": "<|tool_call_begin|>",
}
ANCHORED = ["llama3_json", "pythonic"]
BY_TEXT = [name for name in TURN_FORMATS if name != "harmony"]


def read(name: str, text: str, stop: str, step: int, pausing: bool) -> Outcome:
    model = stand_in(name)
    return decode(model.plain, model.spelled(text), TOOLS, step, stops=(stop,), pausing=pausing)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", BY_TEXT)
def test_a_stop_text_within_a_call_of_the_client(name: str, step: int) -> None:
    text = RENDER[name]([SEARCH])
    outcome = read(name, text, "trees", step, pausing=False)
    assert outcome.verdict is Verdict.STOP
    assert all(isinstance(event, TextDelta) for event in outcome.events)
    assert outcome.shown.endswith("oak ")
    assert outcome.shown in text
    assert "tool_calls" not in outcome.message


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ANCHORED)
def test_a_stop_text_within_a_bare_call_that_pauses(name: str, step: int) -> None:
    text = RENDER[name]([SEARCH])
    outcome = read(name, text, "trees", step, pausing=True)
    assert outcome.verdict is Verdict.STOP
    assert outcome.summary == [("text", text[: text.index("trees")])]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("pausing", [True, False])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_stop_text_that_opens_a_call_is_not_shown(name: str, pausing: bool, step: int) -> None:
    text = f"Hello. {RENDER[name]([SEARCH])}"
    outcome = read(name, text, WRAPPED[name], step, pausing)
    assert outcome.verdict is Verdict.STOP
    assert outcome.summary == [("text", "Hello. ")]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("pausing", [True, False])
@pytest.mark.parametrize("name", BY_TEXT)
def test_a_call_before_the_stop_text_or_without_one(name: str, pausing: bool, step: int) -> None:
    """What may begin a stop text is held back, and nothing of a call is lost."""
    text = RENDER[name]([SEARCH])
    for stop in ("STOP", text[-2:] + "STOP", text[1:] + "STOP"):
        outcome = read(name, text, stop, step, pausing)
        assert outcome.calls == [("search", '{"query": "oak trees"}')], stop
        assert isinstance(outcome.events[-1], CallFinished)


@pytest.mark.parametrize("step", STEPS)
def test_a_stop_text_that_the_engine_ignores_stays_in_the_call(step: int) -> None:
    """In a wrapped call of the server's tools, a stop text is part of an argument."""
    outcome = read("hermes", RENDER["hermes"]([SEARCH]), "trees", step, pausing=True)
    assert outcome.verdict is Verdict.CALL
    assert outcome.calls == [("search", '{"query": "oak trees"}')]


class PromptEngine(Engine):
    """Stands for vLLM in a session that never pauses, whose request is one prompt."""

    async def generate(self, prompt: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        async def chunks() -> AsyncIterator[Any]:
            yield prompt

        async for output in super().generate(chunks()):
            yield output


@pytest.mark.parametrize("stop", ["trees", "<tool_call>"])
async def test_the_client_gets_the_text_before_the_stop_text(stop: str) -> None:
    whole = f"Hello. {RENDER['hermes']([SEARCH])}"
    before, _, _ = whole.partition(stop)
    tokens = stand_in("hermes").spelled(before + stop)
    engine: Any = PromptEngine("hermes", tokens, "stop", Verdict.STOP)
    session = VllmSession(engine, SessionSpec(tuple(TOOLS), pausing=False))
    answer = Answer("model", frozenset({"search"}), pausing=False)
    events = run(
        session,
        [{"role": "user", "content": "Trees?"}],
        Dispatcher(Registry()),
        RunContext(
            client_tools=frozenset({"search"}), sampling=Sampling(stop=(stop,)), pausing=False
        ),
    )
    taken = [event async for event in events]
    deltas = [delta for event in taken for _, delta in answer.take(event)]
    assert "".join(delta["content"] for delta in deltas) == before
    assert answer.message() == {"role": "assistant", "content": before}
    assert answer.finish_reason == "stop"
    assert [event.stop_text for event in taken if isinstance(event, TurnEnded)] == [stop]
    await session.close()
