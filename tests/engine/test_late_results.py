"""The real engine goes on while a call runs, and reads its result later in the same request."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest

from caesura import Agent, Sampling, Session, tool
from caesura.runtime.events import CallGoesOn, RunEvent, ToolReturned, TurnEnded
from caesura.runtime.sdk.across import SessionAcross
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, max_tokens=120)
QUESTION = "What is 48 * 17? Please be exact."
Settled = Callable[[], Any]


class SlowCalculator:
    """A calculator in the background, which answers when it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()

        async def slow(expression: str) -> str:
            await self.let.wait()
            return str(await calculator.call(expression=expression))

        # The bundled model knows this tool by its name and description.
        self.tool = tool(name="calculator", description=calculator.description, background=True)(
            slow
        )


def held(session: Session) -> VllmSession:
    found = session._engine_session
    found = found._session if isinstance(found, SessionAcross) else found
    assert isinstance(found, VllmSession)
    return found


async def test_the_same_request_goes_on_and_reads_the_result_later(
    engine: VllmEngine, settled: Settled
) -> None:
    slow = SlowCalculator()
    agent = Agent(engine, tools=[slow.tool], sampling=GREEDY, trajectories=True)
    events: list[RunEvent] = []
    requests: list[str] = []
    async with agent.session() as session:
        async with aclosing(session.stream(QUESTION)) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, TurnEnded):
                    requests.append(held(session).request_id)
                    if event.reason == "stop":
                        state = await engine.state()
                        waiting = len(requests) == 2
                        assert bool(state["paused_held"]) is waiting, state
                        slow.let.set()
        tokens, messages = list(held(session).tokens), session.messages
        trajectory = await session.trajectory()
    kinds = [type(each) for each in events if isinstance(each, CallGoesOn | ToolReturned)]
    assert kinds == [CallGoesOn, ToolReturned]
    assert len(requests) == 3 and len(set(requests)) == 1
    turns = [each for each in events if isinstance(each, TurnEnded)]
    assert [each.reason for each in turns] == ["call", "stop", "stop"]
    # The result is appended to what the request holds: nothing but new tokens is computed.
    for before, turn in pairwise(turns):
        assert turn.resume is not None
        assert turn.resume.handling == "preserve"
        assert turn.cached_tokens == turn.resume.context_tokens
        assert before.completion_tokens > 0
    roles = [each["role"] for each in messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    # Token by token it is one rendering of the history, in the order in which things came.
    spec = [slow.tool.spec()]
    whole = engine.rendering.renderer.prompt(messages[:-1], spec)
    assert tokens[: len(whole)] == whole
    assert tokens[: len(tokens) - turns[-1].completion_tokens] == whole
    # Who made which token: the acknowledgement and the late result are the tool's.
    (branch,) = trajectory.branches
    sources = [each.source for each in branch.segments]
    assert sources == ["prompt", "sampled", "tool", "sampled", "tool", "sampled"]
    assert [token for each in branch.segments for token in each.tokens] == tokens


async def test_greedy_output_behind_a_late_result_is_that_of_a_fresh_request(
    engine: VllmEngine, settled: Settled
) -> None:
    slow = SlowCalculator()
    agent = Agent(engine, tools=[slow.tool], sampling=GREEDY)
    async with agent.session() as session:
        async with aclosing(session.stream(QUESTION)) as stream:
            async for event in stream:
                if isinstance(event, TurnEnded) and event.reason == "stop":
                    slow.let.set()
        history = session.messages
    async with agent.session(history[:-1]) as fresh:
        again = engine.open(held_spec(session))
        events = [each async for each in again.turn(history[:-1], GREEDY)]
        await again.close()
        assert fresh.messages == history[:-1]
    text = "".join(getattr(each, "text", "") for each in events)
    assert text == history[-1]["content"]


def held_spec(session: Session) -> Any:
    return session._opened_on[1]
