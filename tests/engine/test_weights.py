"""Weights change under sessions that wait and decode, and each token tells which ones made it.

What the new weights compute is checked by a pass of transformers over the same tokens, in float32.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM
from vllm import SamplingParams
from vllm.inputs import tokens_input

from caesura import Agent, Sampling, UsageError
from caesura.intercept.calls.events import CallFinished, Event, TurnEnded
from caesura.runtime.launch import BUNDLED_MODEL, start_engine
from caesura.scheduler.messages import Message, SessionSpec
from caesura.scheduler.session_log import MemoryLog
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator
from caesura.trajectories import collecting, update_weights, updating
from tests.engine.exactness import passed
from tests.engine.known import Known

pytestmark = pytest.mark.engine

NEAR = 1e-4
GREEDY = Sampling(temperature=0, max_tokens=60)
LONG = Sampling(temperature=1, seed=5, max_tokens=400, min_tokens=400)
SUM: list[Message] = [{"role": "user", "content": "What is 48 * 17?"}]
TOOLS = SessionSpec([calculator.spec()])
KV = pytest.mark.parametrize("kv", ["recompute", "keep"])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint with other weights than the bundled model's, but for the embeddings.

    vLLM's CPU build packs the output head when it starts, and reloads it only where it is not tied
    to the embeddings.
    """
    folder = tmp_path_factory.mktemp("weights") / "other"
    shutil.copytree(BUNDLED_MODEL, folder)
    model = AutoModelForCausalLM.from_pretrained(BUNDLED_MODEL, dtype=torch.float32)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if "embed_tokens" not in name:
                each += 0.1 * each.std() * torch.randn(each.shape, generator=noise)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
async def learner() -> AsyncIterator[VllmEngine]:
    """An engine of its own, with copies on the host."""
    started = await start_engine(connector={"host_gib": 0.1}, settings={"handling": "preserve"})
    assert isinstance(started, VllmEngine)
    yield started
    await started.close()


@pytest.fixture(autouse=True)
async def first(learner: VllmEngine) -> AsyncIterator[None]:
    """The engine has the bundled model's weights at first, and nothing in its caches."""
    await update_weights(learner, BUNDLED_MODEL, "0")
    yield
    assert not await learner.llm.is_paused()


async def read(
    session: VllmSession, messages: Sequence[Message], sampling: Sampling = GREEDY
) -> list[Event]:
    return [event async for event in session.turn(messages, sampling)]


def ended(events: Sequence[Event]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def answers(events: Sequence[Event]) -> list[Message]:
    calls = [each for each in events if isinstance(each, CallFinished)]
    assert calls
    return [
        {"role": "tool", "tool_call_id": each.call_id, "name": each.name, "content": "816"}
        for each in calls
    ]


def near(found: Sequence[float], model: str, context: tuple[int, ...]) -> bool:
    """Whether log probabilities at the end of a context are those of a model."""
    wanted = passed(model, context)[len(context) - 1 - len(found) :]
    return found == pytest.approx(wanted, abs=NEAR)


async def asked(engine: VllmEngine) -> tuple[int, Known]:
    """Ask in a new session; return how many tokens were cached, and what is known of its turn."""
    log = Known()
    session = engine.open(TOOLS, log)
    events = await read(session, SUM)
    await session.close()
    return ended(events).cached_tokens, log


@KV
async def test_a_session_that_waits_goes_on_with_the_new_weights(
    learner: VllmEngine, other: str, kv: Any
) -> None:
    log = Known()
    session = learner.open(TOOLS, log)
    called = await read(session, SUM)
    assert (await asked(learner))[0] > 0, "equal prompts share KV"
    await update_weights(learner, other, "1", kv=kv)
    end = ended(await read(session, answers(called)))
    await session.close()

    assert end.resume is not None, "it is the same request"
    assert end.resume.handling == {"keep": "preserve", "recompute": "discard"}[kv]
    assert end.cached_tokens == (end.resume.context_tokens if kv == "keep" else 0)
    assert [set(each) for each in log.versions] == [{"0"}, {"1"}]
    before, after = log.contexts()
    assert near(log.logprobs[0], BUNDLED_MODEL, before)
    assert near(log.logprobs[1], other, after) == (kv == "recompute")

    # Nobody finds KV of the old weights. That of the new ones is shared: when all was dropped, the
    # session that went on has computed the prompt again.
    (cached, fresh), (again, _) = await asked(learner), await asked(learner)
    assert (cached == 0) == (kv == "keep") and again > 0
    assert near(fresh.logprobs[0], other, fresh.contexts()[0])


async def test_after_a_change_answers_are_those_of_an_engine_with_the_new_weights(
    learner: VllmEngine, other: str
) -> None:
    log = Known()
    session = learner.open(TOOLS, log)
    called = await read(session, SUM)
    await update_weights(learner, other, "1")
    await read(session, answers(called))
    await session.close()
    args = ["--max-model-len", "2048", "--dtype", "float32", "--enforce-eager"]
    fresh = await start_engine(other, vllm_args=[*args, "--kv-cache-memory-bytes", str(64 << 20)])
    try:
        same = MemoryLog("same", [replace(log.turns[0])])
        again = fresh.open(TOOLS, same)
        replayed = [event async for event in again.turn(SUM, GREEDY)]
        _ = [event async for event in again.turn(answers(replayed), GREEDY)]
        await again.close()
        assert [each.sampled for each in same.turns] == [each.sampled for each in log.turns]
        unchanged = Known()
        begun = fresh.open(TOOLS, unchanged)
        _ = [event async for event in begun.turn(SUM, GREEDY)]
        await begun.close()
    finally:
        await fresh.close()
    _, here = await asked(learner)
    assert unchanged.turns[0].sampled == here.turns[0].sampled
    assert unchanged.logprobs[0] == pytest.approx(here.logprobs[0], abs=NEAR)
    assert not near(here.logprobs[0], BUNDLED_MODEL, here.contexts()[0])


class Changing(Known):
    """Tells when some tokens of a turn were sampled."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self._tokens = tokens

    def sampled(self, tokens: Sequence[int], facts: Any = None) -> None:
        super().sampled(tokens, facts)
        if len(self.turns[-1].sampled) >= self._tokens:
            self.reached.set()


def parts(log: Known) -> tuple[int, tuple[int, ...]]:
    """Return how many tokens of the only turn the old weights sampled, and the whole context."""
    (versions,), (context,) = log.versions, log.contexts()
    old = versions.index("1")
    assert versions == ["0"] * old + ["1"] * (len(versions) - old)
    return old, context


@KV
async def test_a_turn_that_decodes_is_frozen_and_goes_on(
    learner: VllmEngine, other: str, kv: Any
) -> None:
    log = Changing(40)
    session = learner.open(SessionSpec(), log)
    turn = asyncio.create_task(read(session, SUM, LONG))
    await log.reached.wait()
    await update_weights(learner, other, "1", kv=kv)
    assert ended(await turn).completion_tokens == 400
    await session.close()
    old, context = parts(log)
    (found,) = log.logprobs
    assert 40 <= old < 400 == len(found)
    assert near(found[:old], BUNDLED_MODEL, context[: len(context) - 400 + old])
    assert near(found[old:], other, context) == (kv == "recompute")


async def test_a_recorded_turn_outlives_vllms_own_pause(learner: VllmEngine, other: str) -> None:
    """As vLLM's routes `/pause`, which aborts, and `/resume`: a partial rollout goes on."""
    log, llm = Changing(40), learner.llm
    session = learner.open(SessionSpec(), log)
    texts: list[str] = []

    async def read_all() -> None:
        async for event in session.turn(SUM, LONG):
            texts.append(getattr(event, "text", ""))

    turn = asyncio.create_task(read_all())
    await log.reached.wait()
    await llm.pause_generation()
    await llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    await llm.update_weight_version("1")
    await llm.resume_generation()
    await turn
    await session.close()
    old, context = parts(log)
    (found,) = log.logprobs
    assert 40 <= old < 400 == len(found)
    assert near(found[:old], BUNDLED_MODEL, context[: len(context) - 400 + old])
    assert near(found[old:], other, context)
    tokenizer = learner.tokenizer
    assert "".join(texts) == tokenizer.decode(context[-400:], skip_special_tokens=False)


async def test_no_other_request_finds_what_is_kept(learner: VllmEngine, other: str) -> None:
    """One that was sent straight to vLLM, and one with a salt of its own."""
    _, log = await asked(learner)
    tokens = log.contexts()[0]

    async def cached(name: str, salt: str | None) -> int:
        prompt = tokens_input(list(tokens), cache_salt=salt)
        made = learner.llm.generate(prompt, SamplingParams(max_tokens=1), name)
        return [each.num_cached_tokens or 0 async for each in made][-1]

    await cached("salted", "theirs")
    assert await cached("plain, before", None) > 0 < await cached("salted, before", "theirs")
    async with updating(learner, "1", kv="keep") as llm:
        await llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    assert await cached("plain, after", None) == 0 == await cached("salted, after", "theirs")
    assert await cached("plain, again", None) > 0 < await cached("salted, again", "theirs")


async def test_after_a_failure_the_engine_is_frozen_until_an_update_succeeds(
    learner: VllmEngine, other: str
) -> None:
    with pytest.raises(ValueError, match="half-way"):
        async with updating(learner, "1") as llm:
            with pytest.raises(UsageError, match="the weights are being updated"):
                await update_weights(learner, other, "2")
            raise ValueError("half-way")
    assert await learner.llm.is_paused()
    waiting = asyncio.create_task(asked(learner))
    await update_weights(learner, other, "2")
    _, log = await waiting
    assert await llm.get_weight_version() == "2" and set(log.versions[0]) == {"2"}


async def test_episodes_that_are_not_waited_for_go_on_with_the_next_weights(
    learner: VllmEngine, other: str
) -> None:
    """Rollouts of some steps: those that a step leaves unfinished end in a later one."""

    def prompts() -> Any:
        while True:
            yield "What is 48 * 17?"

    sampling = Sampling(temperature=1, seed=1, max_tokens=60)
    agent = Agent(learner, [calculator], sampling=sampling, trajectories=True)
    steps = []
    async with collecting(agent, prompts(), samples=4, concurrency=8) as episodes:
        for step, folder in enumerate([other, BUNDLED_MODEL, other]):
            steps.append(await episodes.take(8))
            await update_weights(learner, folder, str(step + 1), kv="keep")
    assert [len(each) for each in steps] == [8, 8, 8]
    for step, taken in enumerate(steps):
        told = [each.trajectory for each in taken]
        rollouts = [one.rollout() for one in told if one is not None]
        versions = {name for one in rollouts for name in one.weights} - {None}
        assert versions <= {str(number) for number in range(step + 1)}
        assert str(step) in versions
        assert len(rollouts) == 8 and all(one.logprobs is not None for one in rollouts)


async def test_vllms_routes_leave_sessions_that_wait(
    learner: VllmEngine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that keeps the KV, as prime-rl does; one that drops it takes the defaults."""
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    async with learner.backend.server() as vllm:
        transport = httpx.ASGITransport(vllm.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:

            async def ask(path: str, **fields: Any) -> None:
                assert (await client.post(path, **fields)).status_code == 200

            for number, query in enumerate(({"mode": "keep", "clear_cache": "false"}, {}), 1):
                log = Known()
                session = learner.open(TOOLS, log)
                called = await read(session, SUM)
                await ask("/pause", params=query)
                folder = other if number == 1 else BUNDLED_MODEL
                load = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
                await ask("/collective_rpc", json=load)
                await ask("/update_weight_version", json={"new_version": str(number)})
                await ask("/resume")
                end = ended(await read(session, answers(called)))
                await session.close()
                assert [set(each) for each in log.versions] == [{str(number - 1)}, {str(number)}]
                assert (end.resume is None) == (number == 2), "an abort takes the request"
                assert (end.cached_tokens > 0) == (number == 1)
                if number == 2:
                    assert near(log.logprobs[1], folder, log.contexts()[1])
