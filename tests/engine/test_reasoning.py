"""Thinking on the real engine: a grammar makes the bundled model think aloud."""

from typing import Any

import pytest

from caesura.intercept.calls.events import ReasoningDelta, TextDelta, TurnEnded
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.calculator.tool import calculator
from tests.engine.asked import ANSWER, ASKED, FORCED, THOUGHT, WRITTEN

pytestmark = pytest.mark.engine

MORE: Message = {"role": "user", "content": "And 3+3?"}


@pytest.fixture
def thinking(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    """The engine, as it is for a model whose template shows `<think>`."""
    monkeypatch.setattr(engine.language, "thinking", ("<think>",))
    return engine


async def events_of(session: Any, messages: list[Message]) -> list[Any]:
    return [event async for event in session.turn(messages, FORCED)]


@pytest.mark.parametrize("logprobs", [None, 0])
async def test_thinking_is_told_apart_and_counted(
    thinking: VllmEngine, settled: Any, logprobs: int | None
) -> None:
    session = thinking.open(SessionSpec())
    sampling = Sampling(temperature=0, max_tokens=200, text=FORCED.text, logprobs=logprobs)
    events: list[Any] = [event async for event in session.turn(ASKED, sampling)]
    reasoning = [event.text for event in events if isinstance(event, ReasoningDelta)]
    said = [event for event in events if isinstance(event, TextDelta)]
    assert ("".join(reasoning), "".join(event.text for event in said)) == (THOUGHT, ANSWER)
    assert len(reasoning) > 1
    end = events[-1]
    assert isinstance(end, TurnEnded)
    tokens, decode = session.tokens[-end.completion_tokens :], thinking.tokenizer.decode
    ends = [len(decode(tokens[: count + 1])) for count in range(len(tokens))]
    within = range(len("<think>") + 1, WRITTEN.index("</think>") + 1)
    assert end.reasoning_tokens == sum(place in within for place in ends) > 5
    if logprobs is not None:
        shown = b"".join(token.data for event in said for token in event.logprobs)
        assert shown.decode().strip() == ANSWER
    await session.close()


@pytest.mark.parametrize("sent", [{}, {"reasoning": THOUGHT}, {"reasoning_content": THOUGHT}])
async def test_a_follow_up_continues_from_the_tokens_of_the_thinking(
    thinking: VllmEngine, settled: Any, sent: dict[str, str]
) -> None:
    session = thinking.open(SessionSpec())
    await events_of(session, ASKED)
    answer: Message = {"role": "assistant", "content": ANSWER, "reasoning": THOUGHT}
    await session.remember([answer])
    await session.close()
    told: Message = {"role": "assistant", "content": ANSWER, **sent}
    follow_up = thinking.open(SessionSpec())
    *_, end = await events_of(follow_up, [*ASKED, told, MORE])
    assert end.follow_up.outcome == "spliced"
    assert follow_up.tokens[: len(session.tokens)] == session.tokens
    await follow_up.close()


async def test_a_session_goes_on_behind_its_thinking(thinking: VllmEngine, settled: Any) -> None:
    session = thinking.open(SessionSpec())
    await events_of(session, ASKED)
    first = list(session.tokens)
    events = await events_of(session, [MORE])
    assert session.tokens[: len(first)] == first
    assert any(isinstance(event, ReasoningDelta) for event in events)
    await session.close()


async def test_a_session_that_may_not_call_thinks_apart_too(
    thinking: VllmEngine, settled: Any
) -> None:
    session = thinking.open(SessionSpec([calculator.spec()], tool_choice="none"))
    events = await events_of(session, ASKED)
    assert {type(event) for event in events} == {ReasoningDelta, TextDelta, TurnEnded}
    await session.close()
