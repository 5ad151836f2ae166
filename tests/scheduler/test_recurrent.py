"""Models with recurrent state: no token is applied twice to the state of a request that pauses.

The step in flight when a call ends applies the call's last token. Attention would write the same KV
to the same place again. A state would differ, so the request resumes behind that token. Where more
lies behind the end of the call, such as accepted drafts, the state is given up.
"""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs
from vllm.v1.request import RequestStatus

from caesura.scheduler.records import PauseRecord, parse
from caesura.scheduler.vllm.engine.export.metrics import KVMetrics
from caesura.scheduler.vllm.engine.port import engine_state_of
from caesura.scheduler.vllm.engine.port.layout import OF_INPUTS, RECURRENT, has_recurrent_state
from docs.reference import vllm_streaming_state
from tests.scheduler.clients import clients_come_and_go, converse, resumes

from .invariants import check_all, check_rest, said_as_planned
from .steering import CALL, IN_EVERY_MODE, evict, stateful, until_paused
from .world import Session, World, make_scheduler

CACHED = pytest.mark.parametrize("cached", [False, True], ids=["none", "align"])
"""Without prefix caching a request has one state. With it, states are kept at blocks' ends."""

AHEAD_BY_ONE = pytest.mark.parametrize(
    ("asynchronous", "depth", "stages"),
    [
        pytest.param(False, 0, 1, id="sync"),
        pytest.param(False, 1, 2, id="pipeline-2"),
        pytest.param(False, 3, 4, id="pipeline-4"),
        pytest.param(True, 0, 1, id="async-0"),
        pytest.param(True, 1, 1, id="async-1"),
        pytest.param(True, 2, 2, id="async-pipeline-2"),
        pytest.param(True, 4, 4, id="async-pipeline-4"),
    ],
)
"""As vLLM runs them: with as many steps in flight, at most one goes beyond what was decoded."""


@CACHED
@AHEAD_BY_ONE
def test_a_kept_state_is_used_again(
    asynchronous: bool, depth: int, stages: int, cached: bool
) -> None:
    """A resume computes the result of its tool, and nothing for the second time."""
    options = {"asynchronous": asynchronous, "stages": stages, "handling": "preserve"}
    world = stateful(depth, cached, **options)
    converse(world)
    found = resumes(world)
    assert len(found) == 12
    assert all(one["handling"] == "preserve" for one in found)
    assert all(one["cached_tokens"] == one["context_tokens"] for one in found)
    assert not any(world.computed_again.values())


@CACHED
def test_a_state_that_several_steps_went_beyond_is_given_up(
    cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No release of vLLM schedules like this. One that did would be right, and slow."""
    world = stateful(3, cached, asynchronous=True, handling="preserve")
    converse(world)
    found = resumes(world)
    assert len(found) == 12
    assert all(one["handling"] == "discard" for one in found)
    at_blocks = [one["cached_tokens"] % world.block_size == 0 for one in found]
    assert all(at_blocks), "only states of the prefix cache are used"
    assert any(one["cached_tokens"] for one in found) == cached
    assert caplog.text.count("its recurrent state holds other tokens: several steps") == 1


@CACHED
@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("result", ["3", "3]"])
def test_a_turn_may_end_anywhere_in_a_block(length: int, result: str, cached: bool) -> None:
    world = stateful(1, cached, asynchronous=True, handling="preserve")
    session = world.session("a", range(length + 16), CALL, result, CALL, result, "done")
    for _ in range(2):
        until_paused(world, session)
        assert world.parts.served["a"].pause.held
        world.answer(session)
    world.run()
    assert not any(world.computed_again.values())
    said_as_planned(world)
    check_rest(world)


@CACHED
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_chunk_without_a_result_has_the_last_token_computed_again(
    asynchronous: bool, cached: bool
) -> None:
    """There would be nothing else to compute, and to sample from."""
    world = stateful(int(asynchronous), cached, asynchronous=asynchronous)
    session = world.session("a", range(40), CALL, "", "done")
    until_paused(world, session)
    world.answer(session)
    world.run()
    reports = [one["resume"] for one in session.reports if one["resume"]]
    assert [one["handling"] for one in reports] == ["discard" if asynchronous else "preserve"]
    said_as_planned(world)
    check_rest(world)


@CACHED
@AHEAD_BY_ONE
def test_who_leaves_while_the_last_token_is_applied_leaves_nothing(
    asynchronous: bool, depth: int, stages: int, cached: bool
) -> None:
    """The next request gets the blocks while the step in flight still writes to them."""
    options = {"asynchronous": asynchronous, "stages": stages, "blocks": 34}
    world = stateful(depth, cached, **options)
    for number in range(4):
        session = world.session(f"s{number}", range(number, 450 + number), CALL, " 3]", " done")
        while not session.paused:
            world.step()
            check_all(world)
        world.abort(session)
    last = world.session("last", range(400), CALL, " 3]", " done")
    until_paused(world, last)
    world.drop_kv("last")
    world.answer(last)
    world.run()
    said_as_planned(world)
    check_rest(world)


@CACHED
@IN_EVERY_MODE
@pytest.mark.parametrize("text_before", range(4))
def test_accepted_drafts_leave_no_trace(
    asynchronous: bool, depth: int, cached: bool, text_before: int
) -> None:
    """With drafts even a synchronous engine is behind the call's end when it ends."""
    world = stateful(depth, cached, asynchronous=asynchronous, drafts=3, handling="preserve")
    session = world.session("a", range(40), "w" * text_before + CALL, " 3]", " is it")
    until_paused(world, session)
    assert not world.parts.served["a"].pause.held
    world.answer(session)
    world.run()
    assert world.accepted_drafts
    said_as_planned(world)
    check_rest(world)


@dataclass
class Streaming:
    """One of vLLM's own streaming sessions. It stops at `#`, unless it is given a limit."""

    world: World
    session: Session
    request: Any

    @classmethod
    def begin(cls, world: World, *texts: str, limit: int = 1000) -> "Streaming":
        session = world.session("a", range(40), *texts, watched=False)
        request = world.scheduler.requests["a"]
        request.sampling_params.stop_token_ids = [*b"#"]
        request.max_tokens = limit
        return cls(world, session, request)

    def send(self, chunk: str) -> None:
        self.world.scheduler.add_request(self.world._request("a", [*chunk.encode()], True, None))

    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.session.finished, self.session.paused = False, True  # nobody checks its context
            self.world.step()

    @property
    def waits(self) -> bool:
        return bool(self.request.status == RequestStatus.WAITING_FOR_STREAMING_REQ)

    def end(self, text: str) -> None:
        """Check that its tokens begin with this text, and that it leaves nothing."""
        tokens = list(self.request.all_token_ids)
        expected = [*range(40), *text.encode()]
        assert tokens[: len(expected)] == expected
        self.world.abort(self.session)
        self.world.step()
        self.world.drain()
        check_rest(self.world)


@CACHED
@IN_EVERY_MODE
@pytest.mark.parametrize("early", [False, True])
def test_a_chunk_that_replaces_the_last_token_finds_no_state_with_it(
    asynchronous: bool, depth: int, cached: bool, early: bool
) -> None:
    """As vLLM's own clients send it; it may come before the end of the turn."""
    world = stateful(depth, cached, asynchronous=asynchronous)
    streaming = Streaming.begin(world, "firs#", "then", "second#")
    streaming.step(4 if early else 9)
    assert streaming.waits != early
    streaming.send(" then")
    streaming.step(20)
    assert streaming.waits
    streaming.end("firs thensecond")


@CACHED
@IN_EVERY_MODE
@pytest.mark.parametrize("early", [False, True])
def test_a_chunk_that_repeats_the_last_token_goes_on_behind_it(
    asynchronous: bool, depth: int, cached: bool, early: bool
) -> None:
    world = stateful(depth, cached, asynchronous=asynchronous)
    streaming = Streaming.begin(world, "first#", " then", "second#")
    streaming.step(4 if early else 10)
    assert streaming.waits != early
    streaming.send("# then")
    streaming.step(20)
    assert streaming.waits
    assert (not any(world.computed_again.values())) == (depth < 3)
    streaming.end("first# thensecond")


@CACHED
@IN_EVERY_MODE
def test_a_turn_that_ends_at_its_limit_has_no_step_beyond_it(
    asynchronous: bool, depth: int, cached: bool
) -> None:
    """vLLM knows that limit when it schedules, so the chunk may replace the last token."""
    world = stateful(depth, cached, asynchronous=asynchronous)
    streaming = Streaming.begin(world, "first", "then", "second#", limit=5)
    streaming.step(10)
    assert streaming.waits
    streaming.send(" then")
    streaming.step(20)
    assert (not any(world.computed_again.values())) == (depth < 3)
    streaming.end("firs thensecond")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_discarded_and_evicted_is_computed_again(asynchronous: bool) -> None:
    world = stateful(int(asynchronous), True, asynchronous=asynchronous)
    session = world.session("a", range(70), CALL, " 3]", " done")
    until_paused(world, session)
    world.drop_kv("a")
    evict(world)
    world.answer(session)
    world.run()
    said_as_planned(world)
    assert world.computed_again["a"] >= 70


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_step_without_tokens_leaves_no_place_of_a_state_behind(asynchronous: bool) -> None:
    """As when another request ended with the call, and the engine told its runner at once."""
    world = stateful(int(asynchronous), True, asynchronous=asynchronous)
    session = world.session("a", range(70), CALL, " 3]", " done")
    until_paused(world, session)
    world.drop_kv("a")
    for _ in range(3):
        assert world.step() == 0
    world.answer(session)
    world.run()
    said_as_planned(world)
    assert 0 < session.reports[-1]["resume"]["cached_tokens"] < 70 + len(CALL)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_prompt_is_not_starved_by_those_that_decode(asynchronous: bool) -> None:
    """Of a limit of 36 tokens, nine that decode leave less than a block of 32."""
    options = {"asynchronous": asynchronous, "block_size": 32, "chunk": 36}
    world = stateful(int(asynchronous), True, **options)
    for number in range(9):
        world.session(f"s{number}", range(40), "x" * 90)
    for _ in range(30):
        world.step()
    late = world.session("late", range(50, 250), "y" * 5)
    while not any(session.finished for session in world.sessions.values()):
        world.step()
    assert late.finished, "its prompt waited until the others ended"
    world.run()


@pytest.mark.parametrize("seed", range(6))
@CACHED
@IN_EVERY_MODE
def test_random_clients_with_states(
    asynchronous: bool, depth: int, cached: bool, seed: int
) -> None:
    """Under preemption, aborts and tiny pools as well."""
    rng = random.Random(seed)
    world = stateful(
        depth,
        cached,
        blocks=rng.choice([34, 60, 200]),
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        asynchronous=asynchronous,
        drafts=rng.choice([0, 0, 3]),
        handling=rng.choice(["caesura", "preserve", "discard"]),
    )
    clients_come_and_go(world, rng, 120)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "state+full"}, False),
        ({"layout": "state+full", "asynchronous": True}, False),
        ({"layout": "state+full", "prefix_caching": False, "drafts": 2}, True),
        ({"drafts": 2}, False),
        ({"asynchronous": True, "layout": "window"}, False),
    ],
)
def test_the_log_says_what_is_always_discarded(
    options: dict[str, Any], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    make_scheduler(**options)
    assert ("recurrent state" in caplog.text) is said


def test_records_and_metrics_tell_why_a_state_was_given_up() -> None:
    world = stateful(0, True, drafts=2, host_blocks=10)
    session = world.session("a", range(40), CALL, " 3]", " is it")
    until_paused(world, session)
    world.answer(session)
    world.run()
    registry = CollectorRegistry()

    def make(kind: Any, **about: Any) -> Any:
        return kind(registry=registry, **about)

    metrics = KVMetrics(make, Counter, Gauge, Histogram, ["model"])
    pauses = [one for line in world.records if isinstance(one := parse(line), PauseRecord)]
    for one in pauses:
        metrics.take(one, ["m"])
    released = [(row.why, row.blocks) for one in pauses for row in one.decisions]
    assert released == [(RECURRENT, 4 + 3)], "of attention, and a state with those of two drafts"
    labels = {"model": "m", "why": RECURRENT}
    assert registry.get_sample_value("caesura_kv_released_blocks_total", labels) == 7


def test_states_that_lack_inputs_are_always_discarded() -> None:
    """Of the last tokens, vLLM then keeps what the model would apply, by the runner's slot."""
    scheduler = make_scheduler(layout="state+full")
    assert not engine_state_of(scheduler).layout.discards
    scheduler.cache_config.use_replayssm = True
    assert OF_INPUTS in engine_state_of(scheduler).layout.discards


def test_a_state_among_layers_of_one_group_is_found() -> None:
    config = make_scheduler(layout="state+full").kv_cache_config
    states, attention = (group.kv_cache_spec for group in config.kv_cache_groups)
    both = UniformTypeKVCacheSpecs(block_size=16, kv_cache_specs={"a": attention, "s": states})
    for spec, found in ((attention, False), (states, True), (both, True)):
        groups = [SimpleNamespace(kv_cache_spec=spec)]
        assert has_recurrent_state(SimpleNamespace(kv_cache_groups=groups)) is found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheduler", "wrong"),
    [
        (vllm_streaming_state.SYNC, False),
        (vllm_streaming_state.ASYNC, True),
        ("caesura.scheduler.vllm.CaesuraAsyncScheduler", False),
    ],
)
def test_the_documented_program_shows_the_fault_of_vllm(scheduler: str, wrong: bool) -> None:
    assert bool(vllm_streaming_state.find_faults(scheduler)) is wrong
