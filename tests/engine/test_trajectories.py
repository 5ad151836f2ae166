"""A session's trajectory holds the tokens that the real engine computed, and who made each."""

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from vllm import SamplingParams
from vllm.inputs import tokens_input

from caesura import Agent, Sampling, Session, tool
from caesura.runtime.events import TurnEnded
from caesura.runtime.sdk.across import SessionAcross
from caesura.runtime.trajectories.files import from_json
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator
from caesura.trajectories import Rollout, Trajectory
from tests.kit.waiting import until

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0, max_tokens=120)
QUESTION = "What is 48 * 17? Please be exact."
NOISE = 0.1
"""The most, in log probability, by which a token may be less likely than the likeliest."""
Settled = Callable[[], Any]


def tokens_of(session: Session) -> tuple[int, ...]:
    """Return the tokens of the engine's session."""
    held = session._engine_session
    held = held._session if isinstance(held, SessionAcross) else held
    assert isinstance(held, VllmSession)
    return tuple(held.tokens)


async def turns(session: Session, prompt: str) -> list[TurnEnded]:
    async with aclosing(session.stream(prompt)) as events:
        return [event async for event in events if isinstance(event, TurnEnded)]


def mask_of(turns: list[TurnEnded]) -> list[int]:
    """Return 1 for each token that the turns sampled, and 0 for each that they were sent."""
    return [
        bit for each in turns for bit in [0] * each.prompt_tokens + [1] * each.completion_tokens
    ]


def mask_in(rollout: Rollout) -> list[int]:
    return [0] * len(rollout.prompt_ids) + list(rollout.loss_mask)


async def lags(engine: VllmEngine, ids: tuple[int, ...]) -> list[float]:
    """Return how far each token but the first lies behind the likeliest, in one forward pass."""
    params = SamplingParams(max_tokens=1, prompt_logprobs=1)
    made = engine.llm.generate(tokens_input(list(ids)), params, uuid.uuid4().hex)
    (output,) = [each async for each in made]
    assert output.prompt_logprobs is not None
    return [
        max(each.logprob for each in place.values()) - place[token].logprob
        for token, place in zip(ids[1:], output.prompt_logprobs[1:], strict=True)
        if place is not None
    ]


async def test_ids_and_masks_are_the_engines_over_a_pause_forks_and_a_rewind(
    engine: VllmEngine, settled: Settled
) -> None:
    agent = Agent(engine, [calculator], sampling=GREEDY, trajectories=True)
    async with agent.session() as session:
        told = await turns(session, QUESTION)
        assert [each.reason for each in told][:1] == ["call"]
        first, second = session.fork(2, sampling=Sampling(temperature=1.5, max_tokens=40))
        async with first, second:
            forked = await asyncio.gather(turns(first, "Go on."), turns(second, "Go on."))
            branches = [(await each.trajectory(), tokens_of(each)) for each in (first, second)]
        more = await turns(session, "Tell me more.")
        whole = tokens_of(session)
        session.rewind()
        last = await turns(session, "Thank you!")
        trajectory, after = await session.trajectory(), tokens_of(session)

    one, other = trajectory.rollouts()
    assert (one.ids, other.ids) == (whole, after)
    assert mask_in(one) == mask_of([*told, *more])
    shared = trajectory.branches[1].branch_point
    assert whole[:shared] == after[:shared] and shared == len(mask_of(told))
    assert mask_in(other) == [0] * shared + mask_of(last)
    for (made, tokens), ended in zip(branches, forked, strict=True):
        assert made.rollout().ids == tokens and tokens[:shared] == whole[:shared]
        assert mask_in(made.rollout()) == [0] * shared + mask_of(ended)
        assert len(made.rollouts()) == 1

    resumed = [each.resume for each in trajectory.branches[0].segments if each.resume is not None]
    assert resumed == [each.resume for each in (*told, *more) if each.resume is not None]
    assert {each.handling for each in resumed} == {"preserve"}

    # What counts for the loss is what the model says behind all that stands before it.
    for rollout in (one, trajectory.rollout(other.branch, own=False)):
        found = await lags(engine, rollout.ids)
        counted = [lag for lag, bit in zip(found, mask_in(rollout)[1:], strict=True) if bit]
        rest = [lag for lag, bit in zip(found, mask_in(rollout)[1:], strict=True) if not bit]
        assert max(counted) < NOISE < max(rest)


async def test_branches_of_a_paused_session_compute_what_differs_alone(
    engine: VllmEngine, settled: Settled
) -> None:
    """Each runs the call by itself, while the session that they leave still waits for its own."""
    block = (await engine.command("facts"))["block_size"]
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()
    results = iter(("816", "816", "-3"))

    @tool(name="calculator")
    async def slow(expression: str) -> str:
        """Calculate."""
        result = next(results)
        begun.release()
        await go_on.wait()
        return result

    agent = Agent(engine, [slow], sampling=GREEDY, trajectories=True)
    await engine.llm.reset_prefix_cache(reset_connector=True)
    async with agent.session() as session:
        run = asyncio.create_task(session.run(QUESTION))
        await begun.acquire()  # the model may still write the end of its turn
        await until(lambda: session._memory.record.runs[-1].turns[-1].turn.outcome)
        branches = session.fork(2)
        async with branches[0] as same, branches[1] as other:
            others = []
            for each in (same, other):
                others.append(asyncio.create_task(each.run()))
                await begun.acquire()
            held = (await engine.state())["paused_held"]
            go_on.set()
            answers = [(await each).text for each in (run, *others)]
            told = [await each.trajectory() for each in (session, same, other)]
            assert [each.rollout().ids for each in told[1:]] == [*map(tokens_of, branches)]
    assert held == 1, "branches are sent when their results are there"
    assert answers[0] == answers[1] != answers[2]
    assert told[0].rollout().completion_ids == told[1].rollout().completion_ids
    paused = sum(len(each.tokens) for each in told[0].branches[0].segments[:2])
    for made in told[1:]:
        result, sampled = made.branches[-1].segments
        assert (result.source, sampled.source) == ("tool", "sampled")
        assert made.branches[-1].branch_point == paused
        assert sampled.cached_tokens == (paused - 1) // block * block > 0


async def test_an_edited_answer_shares_the_tokens_before_the_edit(
    engine: VllmEngine, settled: Settled
) -> None:
    async with Agent(engine, sampling=GREEDY, trajectories=True).session() as session:
        await session.run("Hello! Who are you?")
        before = tokens_of(session)
        question = session.messages[0]
        session.messages = [question, {"role": "assistant", "content": "Somebody else."}]
        await session.run("Are you?")
        after = tokens_of(session)
        trajectory = await session.trajectory()
    one, other = trajectory.rollouts()
    assert (one.ids, other.ids) == (before, after)
    branch = trajectory.branches[1]
    shared = branch.branch_point
    assert branch.parent == one.branch and shared >= len(one.prompt_ids)
    assert before[:shared] == after[:shared] and before[shared] != after[shared]
    assert [each.source for each in branch.segments] == ["prompt", "sampled"]


async def test_a_second_engine_loop_tells_the_same(engine: VllmEngine, settled: Settled) -> None:
    """An agent on another event loop than the engine's."""

    def elsewhere() -> tuple[Trajectory, tuple[int, ...]]:
        async def work() -> tuple[Trajectory, tuple[int, ...]]:
            agent = Agent(engine, [calculator], sampling=GREEDY, trajectories=True)
            async with agent.session() as session:
                await session.run(QUESTION)
                return await session.trajectory(), tokens_of(session)

        return asyncio.run(work())

    trajectory, tokens = await asyncio.to_thread(elsewhere)
    assert trajectory.rollout().ids == tokens
    sources = [each.source for each in trajectory.branches[0].segments]
    assert sources == ["prompt", "sampled", "tool", "sampled"]


async def test_a_servers_session_holds_what_all_its_clients_have_computed(
    engine: VllmEngine, recording: httpx.AsyncClient
) -> None:
    """Runs of the server, turns of vLLM's own, branches, choices, Responses and Messages."""
    made = (await recording.post("/sessions", json={})).json()
    about: dict[str, Any] = {"base_url": made["base_url"], "api_key": "none", "max_retries": 0}
    asked: dict[str, Any] = {"model": engine.model, "temperature": 0}
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    told: list[tuple[int, ...]] = []

    async with AsyncOpenAI(**about) as client, AsyncAnthropic(**about) as claude:
        own = {"server_tools": ["calculator"]}
        answer = await client.chat.completions.create(
            messages=history, max_tokens=120, extra_body=own, **asked
        )
        said = answer.choices[0].message.content
        history += [{"role": "assistant", "content": said}, {"role": "user", "content": "Thanks!"}]
        tools: Any = [calculator.spec()]
        for messages in (history, [*history[:2], {"role": "user", "content": "Why?"}]):
            theirs = await client.chat.completions.create(
                messages=messages,
                max_tokens=20,
                tools=tools,
                extra_body={"return_token_ids": True},
                **asked,
            )
            prompt: Any = theirs.model_extra
            sampled: Any = theirs.choices[0].model_extra
            told.append((*prompt["prompt_token_ids"], *sampled["token_ids"]))
        await client.chat.completions.create(messages=history[:1], max_tokens=5, n=2, **asked)
        await client.responses.create(input="Hello! Who are you?", max_output_tokens=20, **asked)
        await claude.messages.create(
            model=engine.model,
            messages=[{"role": "user", "content": "Good day!"}],
            max_tokens=20,
            extra_body={"temperature": 0},
        )
    path = f"/sessions/{made['id']}/trajectories"
    (data,) = (await recording.get(path)).json()["data"]
    trajectory = from_json(json.dumps(data))

    rollouts = trajectory.rollouts()
    assert [each.ids for each in rollouts[:2]] == told and len(rollouts) == 6
    sources = [each.source for each in trajectory.branches[0].segments]
    assert sources == ["prompt", "sampled", "tool", "sampled", "user", "sampled"]
    assert [each.source for each in trajectory.branches[1].segments] == ["prompt", "sampled"]
    spans = [each.messages for each in trajectory.branches[0].segments]
    assert spans == [(at, at + 1) for at in range(6)]
    resumed = trajectory.branches[0].segments[3].resume
    assert resumed is not None and resumed.handling == "preserve"
    for rollout in rollouts:
        found = await lags(engine, rollout.ids)
        whole = mask_in(trajectory.rollout(rollout.branch, own=False))
        assert max(lag for lag, bit in zip(found, whole[1:], strict=True) if bit) < NOISE
