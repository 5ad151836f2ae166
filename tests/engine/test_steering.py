"""A turn that the real engine decodes is cut, and the same request goes on behind new words."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.inputs import tokens_input

from caesura import Agent, Sampling, Session
from caesura.runtime.events import RunEnded, RunEvent, Steered, TextDelta, TurnEnded
from caesura.runtime.sdk.across import SessionAcross
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, min_tokens=110, max_tokens=120)
"""The bundled model answers in a sentence; held to more, it writes on."""
QUESTION, WORDS = "Why is the sky blue?", "Hello, who are you?"
Settled = Callable[[], Any]


def held(session: Session) -> VllmSession:
    found = session._engine_session
    found = found._session if isinstance(found, SessionAcross) else found
    assert isinstance(found, VllmSession)
    return found


async def read(session: Session, prompt: str, act: Callable[[], Any]) -> list[RunEvent]:
    """Run a prompt, and act at the first text."""
    events: list[RunEvent] = []
    async with aclosing(session.stream(prompt)) as stream:
        async for event in stream:
            if isinstance(event, TextDelta) and not any(
                isinstance(each, TextDelta) for each in events
            ):
                act()
            events.append(event)
    return events


async def greedy(engine: VllmEngine, tokens: list[int]) -> list[int]:
    """Return what a fresh request says behind tokens."""
    params = SamplingParams(temperature=0, min_tokens=110, max_tokens=120)
    said: list[int] = []
    async for output in engine.llm.generate(tokens_input(tokens), params, f"fresh-{len(tokens)}"):
        said = list(output.outputs[0].token_ids)
    return said


async def uncut(agent: Agent) -> str:
    """Return what the model says if nobody steers it."""
    async with agent.session() as session:
        return (await session.run(QUESTION)).text


async def test_a_turn_is_cut_and_the_same_request_goes_on(
    engine: VllmEngine, settled: Settled
) -> None:
    agent = Agent(engine, tools=[calculator], sampling=GREEDY, trajectories=True)
    async with agent.session() as session:
        steering: list[Any] = []

        def steer() -> None:
            steering.append(session._reached().say(WORDS))

        events = await read(session, QUESTION, steer)
        assert await steering[0]
        tokens, messages = list(held(session).tokens), session.messages
        trajectory = await session.trajectory()
    turns = [each for each in events if isinstance(each, TurnEnded)]
    assert [each.reason for each in turns] == ["cut", "length"]
    assert sum(isinstance(each, Steered) for each in events) == 1
    said = str(messages[1]["content"])
    whole_text = await uncut(agent)
    assert whole_text.startswith(said) and len(said) < len(whole_text)
    resume = turns[1].resume
    assert resume is not None and resume.handling == "preserve"
    assert turns[1].cached_tokens == resume.context_tokens  # nothing was computed again
    assert messages[2] == {"role": "user", "content": WORDS}
    sent = tokens[: len(tokens) - turns[1].completion_tokens]
    if said == said.strip():  # the template trims an answer
        # Token by token it is one rendering of the history.
        assert sent == engine.rendering.renderer.prompt(messages[:3], [calculator.spec()])
    assert await greedy(engine, sent) == tokens[len(sent) :]
    (branch,) = trajectory.branches
    assert [each.source for each in branch.segments] == [
        *("prompt", "sampled", "user", "sampled"),
    ]


async def test_an_interrupted_answer_keeps_its_request_for_the_next_prompt(
    engine: VllmEngine, settled: Settled
) -> None:
    agent = Agent(engine, tools=[calculator], sampling=GREEDY)
    whole_text = await uncut(agent)
    async with agent.session() as session:
        events = await read(session, QUESTION, session.interrupt)
        assert isinstance(events[-1], RunEnded) and events[-1].reason == "interrupted"
        request, tokens = held(session).request_id, len(held(session).tokens)
        assert (await engine.state())["paused_held"] == 1
        said = session.messages[-1]["content"]
        assert whole_text.startswith(said) and len(said) < len(whole_text)
        turns = []
        async with aclosing(session.stream(WORDS)) as stream:
            async for event in stream:
                if isinstance(event, TurnEnded):
                    turns.append(event)
        assert held(session).request_id == request
        assert turns[0].cached_tokens == tokens - 1


async def test_a_turn_of_calls_is_not_cut(engine: VllmEngine, settled: Settled) -> None:
    agent = Agent(engine, tools=[calculator], sampling=Sampling(temperature=0, max_tokens=120))
    async with agent.session() as session:
        steering: list[Any] = []
        turns: list[TurnEnded] = []
        async with aclosing(session.stream("What is 48 * 17?")) as stream:
            async for event in stream:
                if not steering:
                    steering.append(session._reached().say("Please be brief."))
                if isinstance(event, TurnEnded):
                    turns.append(event)
        assert await steering[0]
        roles = [each["role"] for each in session.messages]
    assert turns[0].reason == "call"
    assert roles[:4] == ["user", "assistant", "tool", "user"]
