"""The queue is bounded in predicted memory-time, and refusals say when to come back."""

import asyncio
from typing import Any

import pytest

from caesura.intercept.kv.views import Groups
from caesura.runtime.server.load.gate import (
    MAX_RETRY_SECONDS,
    MAX_UNTOLD_SECONDS,
    Backlog,
    Machine,
    QueueBound,
    refusal,
)
from caesura.runtime.testing import call

MACHINE = Machine(block_size=16, capacity_tokens=1600, slots=100)
STEP_SECONDS = 0.1


def steps(at: float = 0.0, prompt: int = 0, seconds: float = STEP_SECONDS) -> dict[str, Any]:
    """A record of one step, which decodes a token and computes `prompt` of prompts."""
    row = {"at": at, "seconds": seconds, "decode_tokens": 1, "prefill_tokens": prompt}
    columns = {name: [value] for name, value in (row | {"recompute_tokens": 0}).items()}
    return {"kind": "steps", **columns}


def queued(
    request: str, tokens: int, decode: float, at: float = 0.0, blocks: int = 0
) -> list[dict[str, Any]]:
    """The records of a request that joins the queue."""
    forecast = {"kind": "forecast", "request": request, "calls": 0, "at": at}
    return [
        forecast | {"predictions": [{"decode_tokens": decode}, {"decode_tokens": 10 * decode}]},
        lane(request, "waiting", tokens, at, blocks),
    ]


def lane(
    request: str, state: str, tokens: int = 0, at: float = 0.0, blocks: int = 0
) -> dict[str, Any]:
    row = {"request": request, "state": state, "at": at, "blocks": blocks, "host": 0}
    columns = {name: [value] for name, value in (row | {"tokens": tokens}).items()}
    return {"kind": "lanes", **columns}


def backlog_of(*records: dict[str, Any], machine: Machine = MACHINE) -> Backlog:
    backlog = Backlog(machine)
    backlog.take(records)
    return backlog


def test_work_is_memory_time() -> None:
    # 20 tokens of 0.1 s each, in a quarter of the KV cache on average.
    backlog = backlog_of(steps(), *queued("a", tokens=390, decode=20, blocks=25))
    assert backlog.seconds == pytest.approx(20 * STEP_SECONDS * 0.25)


def test_states_are_memory_and_hold_no_tokens() -> None:
    """A request of 13 blocks here has 10 of full attention, and 3 states."""
    hybrid = Machine(block_size=16, capacity_tokens=1600, slots=100, groups=Groups(1, (), 3))
    records = [steps(), *queued("a", tokens=156, decode=8, blocks=13)]
    backlog = backlog_of(*records, machine=hybrid)
    held = 8 * STEP_SECONDS * (160 + 48) / 1600
    assert backlog.seconds == pytest.approx(held)
    backlog.take([steps(prompt=1), *queued("b", tokens=320, decode=0, blocks=13)])
    assert backlog.seconds == pytest.approx(held + 160 * STEP_SECONDS / 2)


def test_scarce_slots_count_more_than_memory() -> None:
    machine = Machine(block_size=16, capacity_tokens=1_000_000, slots=4)
    backlog = backlog_of(steps(), *queued("a", 160, decode=20, blocks=10), machine=machine)
    assert backlog.seconds == pytest.approx(20 * STEP_SECONDS / 4)


def test_what_has_no_kv_is_computed_at_the_pace_of_past_prompts() -> None:
    pace = steps(prompt=99, seconds=2.0)  # 0.02 s a token
    kept = backlog_of(pace, *queued("a", tokens=160, decode=0, blocks=10)).seconds
    half = backlog_of(pace, *queued("a", tokens=160, decode=0, blocks=5)).seconds
    assert (kept, half) == (0, pytest.approx(80 * 0.02))


@pytest.mark.parametrize("state", ["prefill", "loading", "recompute", "ended"])
def test_who_runs_or_has_ended_does_not_wait(state: str) -> None:
    backlog = backlog_of(steps(), *queued("a", 400, decode=20), *queued("b", 400, decode=20))
    both = backlog.seconds
    backlog.take([lane("a", state)])
    assert backlog.seconds == pytest.approx(both / 2)
    backlog.take([lane("a", "waiting", 400)])  # back from a tool, or preempted
    assert backlog.seconds == pytest.approx(both)


def test_an_engine_that_ended_has_no_queue_but_a_known_pace() -> None:
    backlog = backlog_of(steps(), *queued("a", 400, decode=20))
    before = backlog.seconds
    backlog.forget()
    assert backlog.seconds == 0
    backlog.take(queued("b", 400, decode=20))
    assert backlog.seconds == before > 0


def test_without_a_bound_only_the_number_is_bounded() -> None:
    assert refusal(3, 4, wait_seconds=1e6, most_wait_seconds=0) is None
    assert refusal(4, 4, wait_seconds=0, most_wait_seconds=0) is not None


def test_refusals_name_the_time_until_there_is_room() -> None:
    full = refusal(4, 4, wait_seconds=12.2, most_wait_seconds=0)
    late = refusal(1, 4, wait_seconds=12.2, most_wait_seconds=10)
    assert full is not None and late is not None
    assert (full.code, full.retry_seconds) == ("too_many_requests", 13)
    assert (late.code, late.retry_seconds) == ("queue_too_long", 3)
    assert refusal(1, 4, wait_seconds=10, most_wait_seconds=10) is None


def test_the_time_to_retry_is_whole_positive_and_bounded() -> None:
    for wait, retry in ((0.0, 1), (0.1, 1), (1e9, MAX_RETRY_SECONDS)):
        refused = refusal(1, 1, wait, 0)
        assert refused is not None and refused.retry_seconds == retry


class Now:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_burst_is_counted_before_records_tell_of_it() -> None:
    now = Now()
    bound = QueueBound(10, [MACHINE], now)
    bound.take(0, [steps(at=990), *queued("a", 390, decode=200, at=990, blocks=25)])
    bound.take(0, [lane("a", "ended", at=991)])
    let_in = 0
    while bound.refusal(let_in, 1024) is None:
        bound.admitted()
        let_in += 1
        assert let_in < 100
    each = 200 * STEP_SECONDS * (390 + 100) / 1600
    assert let_in == int(10 / each) + 1
    bound.take(0, [lane("x", "prefill", at=1001)])  # records that tell of all these
    assert bound.wait_seconds == 0


def test_requests_that_never_reach_a_record_are_forgotten() -> None:
    now = Now()
    bound = QueueBound(10, [MACHINE], now)
    bound.take(0, [steps(at=990), *queued("a", 390, 200, at=990), lane("a", "ended", at=991)])
    bound.admitted()
    assert bound.wait_seconds > 0
    now.seconds += MAX_UNTOLD_SECONDS
    assert bound.wait_seconds == 0


def test_of_several_engines_the_one_with_the_least_work_counts() -> None:
    bound = QueueBound(10, [MACHINE, MACHINE], Now())
    bound.take(0, [steps(), *queued("a", 400, decode=2000)])
    assert bound.wait_seconds == 0
    bound.take(1, [steps(), *queued("b", 400, decode=200)])
    assert 0 < bound.wait_seconds < 30
    bound.take(7, [steps()])  # an engine of another server in this process
    bound.forget()
    assert bound.wait_seconds == 0


async def test_a_request_that_would_wait_too_long_gets_a_429(serve_script) -> None:
    bound = QueueBound(10, [MACHINE])
    served = await serve_script(["One.", "Two."], queue=bound)
    assert (await served.chat())[0] == 200
    bound.take(0, [steps(), *queued("a", 400, decode=1000, at=4e9)])
    waits = bound.wait_seconds
    async with served.http.post("/v1/chat/completions", json=served.body()) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (429, "queue_too_long")
        assert error["type"] == "rate_limit_error"
        assert waits - 10 <= int(response.headers["Retry-After"]) < waits - 9
    async with served.http.get("/metrics") as response:
        assert f"caesura_predicted_queue_seconds {waits}" in await response.text()
    bound.take(0, [lane("a", "prefill")])
    assert (await served.chat())[0] == 200


async def test_a_full_server_names_the_predicted_wait(serve_script, hanging) -> None:
    bound = QueueBound(0, [MACHINE])
    served = await serve_script(
        [call("hang"), "Done."], [hanging.tool], max_concurrent=1, queue=bound
    )
    first = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    bound.take(0, [steps(), *queued("a", 400, decode=1000, at=4e9)])
    async with served.http.post("/v1/chat/completions", json=served.body()) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (429, "too_many_requests")
        assert 0 <= int(response.headers["Retry-After"]) - bound.wait_seconds < 1
        assert int(response.headers["Retry-After"]) > 10
    hanging.released.set()
    assert (await first)[0] == 200
