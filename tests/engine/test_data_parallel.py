"""Two data-parallel engines behind one client: sessions stay where their KV is.

The tests share one pair of engines, and the last of them ends it.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY
from vllm import SamplingParams
from vllm.inputs import tokens_input

from caesura.intercept.calls.events import CallFinished, Event, TurnEnded
from caesura.runtime.launch import start_engine
from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.session import VllmSession
from caesura.tools.calculator.tool import calculator

# Each of several processes imports vLLM, which takes long on a busy machine.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = SessionSpec([calculator.spec()], Sampling(temperature=0, max_tokens=120))
CLIENTS_OWN = SessionSpec(
    [calculator.spec()], Sampling(temperature=0, max_tokens=120), pausing=False
)
SUMS = [(48, 17), (35, 12), (27, 31), (64, 22), (93, 11), (58, 13)]


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[VllmEngine]:
    started = await start_engine(
        vllm_args=["--data-parallel-size", "2", "--kv-cache-memory-bytes", str(64 << 20)],
        connector={"host_gib": 0.05},
    )
    assert isinstance(started, VllmEngine)
    yield started
    await started.close()


def ask(first: int, second: int) -> list[Message]:
    return [{"role": "user", "content": f"What is {first}*{second}?"}]


async def read(session: VllmSession, messages: Sequence[Message]) -> list[Event]:
    return [event async for event in session.turn(messages)]


def results(events: Sequence[Event]) -> list[Message]:
    calls = [event for event in events if isinstance(event, CallFinished)]
    assert calls, events
    return [
        {"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": "816"}
        for call in calls
    ]


@pytest.fixture
def ranks(pair: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The engines that requests name, by their ids."""
    named: dict[str, int] = {}
    generate = pair.llm.generate

    def spy(prompt: Any, params: Any, request_id: str, **options: Any) -> Any:
        named[request_id] = options["data_parallel_rank"]
        return generate(prompt, params, request_id, **options)

    monkeypatch.setattr(pair.llm, "generate", spy)
    return named


def rank_of(session: VllmSession, ranks: dict[str, int]) -> int:
    assert session.request_id is not None
    return ranks[session.request_id]


async def said_elsewhere(pair: VllmEngine, rank: int, context: list[int], count: int) -> list[int]:
    """What the model says to these tokens on the other engine, from scratch."""
    await pair.llm.reset_prefix_cache(reset_connector=True)
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    name = f"again-{os.urandom(4).hex()}"
    prompt = tokens_input(list(context))
    said: list[int] = []
    async for output in pair.llm.generate(prompt, params, name, data_parallel_rank=1 - rank):
        said = list(output.outputs[0].token_ids)
    return said


async def settled(pair: VllmEngine) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for _ in range(600):
        state = await pair.state()
        rest = state["running"] + state["waiting"] + state["watched"] + state["closing"]
        if not rest and not pair.llm.engine_core.reqs_in_flight:  # type: ignore[attr-defined]
            break
        await asyncio.sleep(0.05)
    return state


async def test_sessions_stay_on_their_engine_and_say_what_they_would_on_the_other(
    pair: VllmEngine, ranks: dict[str, int]
) -> None:
    sessions = [pair.open(SPEC) for _ in SUMS]
    turns = await asyncio.gather(
        *(read(session, ask(*terms)) for session, terms in zip(sessions, SUMS, strict=True))
    )
    homes = [rank_of(session, ranks) for session in sessions]
    assert sorted(homes) == [0, 0, 0, 1, 1, 1]
    states = (await pair.state())["engines"]
    assert [state["paused_held"] for state in states] == [3, 3]
    await asyncio.gather(*(session.expect_pause(3.0) for session in sessions))
    ends = await asyncio.gather(
        *(read(session, results(turn)) for session, turn in zip(sessions, turns, strict=True))
    )
    for session, home, end in zip(sessions, homes, ends, strict=True):
        assert isinstance(end[-1], TurnEnded) and rank_of(session, ranks) == home
        assert end[-1].resume is not None and end[-1].resume.handling == "preserve"
    for session in sessions:
        await session.close()
    state = await settled(pair)
    assert state["blocks_free"] == state["blocks_total"] and state["lost_blocks"] == 0
    for session, home, end in zip(sessions, homes, ends, strict=True):
        decoded = end[-1].completion_tokens  # type: ignore[union-attr]
        context, said = session.tokens[:-decoded], session.tokens[-decoded:]
        assert await said_elsewhere(pair, home, context, decoded) == said


async def test_a_follow_up_of_a_clients_own_tools_returns(
    pair: VllmEngine, ranks: dict[str, int]
) -> None:
    """Each is a new request of a new session, while the other engine has less to do."""
    for terms in SUMS[:4]:
        first = pair.open(CLIENTS_OWN)
        events = await read(first, ask(*terms))
        home = rank_of(first, ranks)
        answer: Message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": event.call_id,
                    "type": "function",
                    "function": {"name": event.name, "arguments": event.arguments},
                }
                for event in events
                if isinstance(event, CallFinished)
            ],
        }
        await first.close(follow_up=True)
        second = pair.open(CLIENTS_OWN)
        end = (await read(second, [*ask(*terms), answer, *results(events)]))[-1]
        assert rank_of(second, ranks) == home
        assert isinstance(end, TurnEnded) and end.cached_tokens > 0
        await second.close()


async def test_control_messages_reach_every_engine_and_leave_nothing(pair: VllmEngine) -> None:
    for _ in range(20):
        states = (await pair.state())["engines"]
        assert len(states) == 2
    assert pair.llm.engine_core.engine_inflight.total() == 0  # type: ignore[attr-defined]
    assert (await settled(pair))["lost_blocks"] == 0


async def test_the_calibration_of_the_first_engine_is_taken_by_both(pair: VllmEngine) -> None:
    calibration = await pair.measure(True, lambda done, what: None)
    await pair.adopt(calibration)
    taken = [reply["cost"] for reply in await pair.command_all("samples")]
    assert taken[0]["out_rate"] == taken[1]["out_rate"] > 0


async def test_metrics_are_told_apart_by_engine(pair: VllmEngine) -> None:
    for rank in ("0", "1"):
        labels = {"model_name": pair.model, "engine": rank, "owner": "free"}
        assert REGISTRY.get_sample_value("caesura_kv_blocks", labels), rank


async def test_the_death_of_one_engine_is_that_of_both(pair: VllmEngine) -> None:
    """vLLM serves nothing more then, so nothing may wait for an answer that never comes."""
    session = pair.open(SPEC)
    await read(session, ask(48, 17))
    manager: Any = pair.llm.engine_core.resources.engine_manager  # type: ignore[attr-defined]
    os.kill(manager.processes[1].pid, signal.SIGKILL)
    with pytest.raises(EngineFailed):
        for _ in range(3000):
            await pair.check_health()
            await asyncio.sleep(0.02)
    with pytest.raises(EngineFailed):
        await pair.state()
    await session.close()
