"""Wedges and corruptions that vLLM and SGLang have met, around vLLM's real scheduler.

Each test is named after the symptom; its docstring says where it was reported. The controls run the
same situation on the stock scheduler: where that wedges too, the test is known to be able to fail.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from vllm import __version_tuple__ as vllm_version
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler
from caesura.scheduler.vllm.engine.compose import Dependencies
from tests.scheduler.invariants import leaves_nothing
from tests.scheduler.layouts import over_layouts
from tests.scheduler.unwatched import VllmSessions

from .world import BYTES, Session, SteppedClock, World, _prefix_hashes, make_scheduler

CALL = "sum [calc(1+2) ->"
MODES = [
    pytest.param(False, 0, id="sync"),
    pytest.param(True, 0, id="async-0"),
    pytest.param(True, 1, id="async-1"),
    pytest.param(True, 3, id="async-3"),
]
MakeWorld = Callable[..., World]


def watched(asynchronous: bool = False, depth: int = 0, **options: Any) -> World:
    return World(make_scheduler(asynchronous=asynchronous, **options), depth)


def unwatched(asynchronous: bool = False, depth: int = 0, **options: Any) -> VllmSessions:
    return VllmSessions(make_scheduler(asynchronous=asynchronous, **options), depth)


def stock(asynchronous: bool = False, depth: int = 0, **options: Any) -> VllmSessions:
    scheduler_class = AsyncScheduler if asynchronous else Scheduler
    scheduler = make_scheduler(
        asynchronous=asynchronous, scheduler_class=scheduler_class, **options
    )
    return VllmSessions(scheduler, depth)


OURS = pytest.mark.parametrize("make", [watched, unwatched, *over_layouts(watched)])
IN_EVERY_MODE = pytest.mark.parametrize(("asynchronous", "depth"), MODES)


def run_until_paused(world: World, *sessions: Session) -> None:
    for _ in range(300):
        if all(session.paused for session in sessions):
            world.drain()
            return
        world.step()
    raise AssertionError("not paused")


def finishes(world: World, steps: int = 500) -> None:
    """Everything finishes, every client has what it planned, and no block is lost."""
    world.run(steps)
    leaves_nothing(world)
    for session in world.sessions.values():
        assert session.delivered == [token for part in session.parts[::2] for token in part]


def wedges(world: World, *stuck: Session, steps: int = 150) -> None:
    """Nothing is scheduled any more although these sessions have not finished."""
    scheduled = [world.step() for _ in range(steps)]
    assert sum(scheduled[-50:]) == 0
    assert not any(session.finished for session in stuck)


# -- sessions hold what others need --------------------------------------------------------------


def two_paused(make: MakeWorld, asynchronous: bool, depth: int) -> World:
    """Both hold 9 of 20 blocks; either needs 16 to go on."""
    world = make(asynchronous, depth, blocks=20, max_model_len=320)
    for name, start in (("a", 0), ("b", 1000)):
        world.session(name, range(start, start + 120), CALL, "x" * 100, " done")
    run_until_paused(world, *world.sessions.values())
    return world


@OURS
@IN_EVERY_MODE
def test_resumed_sessions_hold_what_each_other_needs(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """vLLM #49439, "Prevent streaming session deadlock under KV pressure" (open)."""
    world = two_paused(make, asynchronous, depth)
    for session in world.sessions.values():
        world.answer(session)
    finishes(world)


@IN_EVERY_MODE
def test_control_stock_resumed_sessions_wedge(asynchronous: bool, depth: int) -> None:
    world = two_paused(stock, asynchronous, depth)
    for session in world.sessions.values():
        world.answer(session)
    wedges(world, *world.sessions.values())


@OURS
@IN_EVERY_MODE
def test_session_comes_back_while_another_tool_hangs(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """vLLM #49439 with one tool that returns long after the other."""
    world = two_paused(make, asynchronous, depth)
    back, hanging = world.sessions.values()
    world.answer(back)
    for _ in range(60):
        world.step()
    assert back.finished
    world.answer(hanging)
    finishes(world)


def test_control_stock_session_waits_for_another_tool() -> None:
    world = two_paused(stock, False, 0)
    back, _ = world.sessions.values()
    world.answer(back)
    wedges(world, back)


@OURS
@IN_EVERY_MODE
def test_burst_of_sessions_over_subscribes_the_cache(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """SGLang #27024, first cause: more sessions between turns than the cache has room for."""
    world = make(asynchronous, depth, blocks=20, max_model_len=320)
    shared = range(64)
    sessions = [
        world.session(f"s{index}", [*shared, *range(index * 100, index * 100 + 60)], CALL, "]", "")
        for index in range(6)
    ]
    run_until_paused(world, *sessions)
    other = world.plain("other", range(5000, 5300))
    for _ in range(20):
        world.step()
    assert other.finished
    finishes(world)


def test_control_stock_burst_of_sessions_wedges() -> None:
    world = stock(blocks=20, max_model_len=320)
    for index in range(6):
        world.session(f"s{index}", range(index * 100, index * 100 + 120), CALL, "]", "")
    for _ in range(100):
        world.step()
    wedges(world, *(session for session in world.sessions.values() if not session.paused))


def growing_session(world: World) -> tuple[Session, list[Session]]:
    """Each turn adds 57 tokens, up to the context window; somebody else comes in every pause."""
    texts = [CALL, "x" * 39 + "]"] * 4
    session = world.session("grows", range(60), *texts, "w" * 100)
    others = []
    for turn in range(4):
        run_until_paused(world, session)
        others.append(world.plain(f"other-{turn}", range(turn * 500, turn * 500 + 200), "ok"))
        for _ in range(20):
            world.step()
        world.answer(session)
    return session, others


@IN_EVERY_MODE
def test_session_outgrows_the_cache(asynchronous: bool, depth: int) -> None:
    """SGLang #27024, second cause: one session grows until its own KV fills the cache."""
    world = watched(asynchronous, depth, blocks=20, max_model_len=320)
    session, others = growing_session(world)
    assert all(other.finished for other in others)
    world.run()
    leaves_nothing(world)
    assert len(session.prompt) + 4 * 40 + len(session.delivered) == 320


def test_control_stock_session_outgrows_the_cache() -> None:
    world = stock(blocks=20, max_model_len=320)
    _, others = growing_session(world)
    assert not all(other.finished for other in others)


@IN_EVERY_MODE
def test_reclaimed_between_turns_again_and_again(asynchronous: bool, depth: int) -> None:
    """SGLang #27024, third: releasing a live session after its second turn crashed or lost KV."""
    world = watched(asynchronous, depth, blocks=20, max_model_len=320)
    sessions = [
        world.session(name, range(100), "a" * index + CALL, "1]", CALL, "2]", CALL, "3]", " done")
        for index, name in enumerate("abc")
    ]
    for turn in range(3):
        run_until_paused(world, *sessions)
        hungry = world.plain(f"hungry-{turn}", range(turn * 500, turn * 500 + 310), "ok")
        for _ in range(20):
            world.step()
        assert hungry.finished
        for session in sessions:
            world.answer(session)
    finishes(world)
    handled = {report["resume"]["handling"] for s in sessions for report in s.reports[1:]}
    assert handled == {"discard"}


@OURS
@IN_EVERY_MODE
def test_abort_with_a_turn_queued_behind_the_running_one(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """SGLang #27024, fourth: an overlapping turn left an orphan whose KV nobody could free."""
    world = make(asynchronous, depth)
    session = world.session("a", range(60), CALL, "x" * 50, " done")
    for _ in range(4):
        world.step()
    world._add(session, [ord(">"), *session.parts[1]], resumable=True, watched=make is watched)
    world.step()
    world.abort(session)
    leaves_nothing(world)


# -- sessions hold what nobody may hold: places in the batch --------------------------------------


@IN_EVERY_MODE
def test_sessions_whose_clients_vanished_leave_room(asynchronous: bool, depth: int) -> None:
    """vLLM #53130: no admissions once running and deferred requests reach max_num_seqs."""
    world = watched(asynchronous, depth, max_num_seqs=3)
    gone = [world.session(f"g{index}", range(40), CALL, "]", " done") for index in range(7)]
    run_until_paused(world, *gone)
    others = [world.plain(f"p{index}", range(index, index + 50)) for index in range(7)]
    others.append(world.session("s", range(30), "no call"))
    for _ in range(60):
        world.step()
    assert all(other.finished for other in others)
    for session in gone:
        world.abort(session)
    leaves_nothing(world)


def test_control_stock_sessions_whose_clients_vanished_wedge() -> None:
    world = stock(max_num_seqs=3)
    gone = [world.session(f"g{index}", range(40), CALL, "]", " done") for index in range(3)]
    run_until_paused(world, *gone)
    wedges(world, world.plain("p", range(50)))


@IN_EVERY_MODE
def test_runner_never_holds_more_requests_than_it_has_slots(asynchronous: bool, depth: int) -> None:
    """vLLM #53130, the other side: slots that are given back must be free in the runner too."""
    world = watched(asynchronous, depth, max_num_seqs=3)
    for index in range(9):
        world.session(f"s{index}", range(index, index + 40), CALL, "1]", CALL, "2]", " done")
    for _ in range(400):
        world.step()
        assert len(world._view) <= 3
        paused = [session for session in world.sessions.values() if session.paused]
        if len(paused) >= 5:
            for session in paused:
                world.answer(session)
    for session in world.sessions.values():
        if session.paused:
            world.answer(session)
    finishes(world)


@IN_EVERY_MODE
def test_grammars_that_never_compile_hold_up_nobody(asynchronous: bool, depth: int) -> None:
    """vLLM #53130: what really parked the requests was a grammar that failed to compile."""
    world = watched(asynchronous, depth, max_num_seqs=2, blocks=20, max_model_len=320)
    compiling: Future[Any] = Future()
    for index in range(4):
        request = world._request(f"grammar-{index}", list(range(200)), False, None)
        request.structured_output_request = StructuredOutputRequest(
            params=StructuredOutputsParams(regex="a+"), _grammar=compiling
        )
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        world.scheduler.add_request(request)
    for name, start in (("a", 0), ("b", 1000)):
        world.session(name, range(start, start + 120), CALL, "x" * 100, " done")
    for _ in range(100):
        world.step()
        for session in world.sessions.values():
            if session.paused:
                world.answer(session)
    assert len(world.scheduler.requests) == 4
    compiling.set_exception(TimeoutError("compiler timed out"))
    finishes(world)


# -- a turn ends while something of its session is still in flight ---------------------------------


@pytest.mark.parametrize("make", [watched, unwatched, stock])
@IN_EVERY_MODE
def test_turn_of_nothing_but_the_end_token(make: MakeWorld, asynchronous: bool, depth: int) -> None:
    """vLLM #52693: a continuation that stops at its first token killed the engine (0.25.1).

    Stock vLLM has it right, which must stay so.
    """
    world = make(asynchronous, depth, max_num_batched_tokens=32)
    world.session("a", range(60), CALL, "x" * 100, "")
    world.session("b", range(60, 130), CALL, "x" * 30, CALL, "]", "")
    world.plain("p", range(200), "y" * 60)
    finishes(world)


@IN_EVERY_MODE
def test_only_watched_sessions_pause_outside_of_the_queues(asynchronous: bool, depth: int) -> None:
    """Others are vLLM's own streaming sessions, which its users find in its queues."""
    for make, parks in ((watched, True), (unwatched, False)):
        world = make(asynchronous, depth)
        session = world.session("a", range(60), CALL, " 3]", " done")
        run_until_paused(world, session)
        (request,) = world.scheduler.requests.values()
        assert (request in world.parts.port.parked()) == parks
        assert (request in world.scheduler.kv_holding_waiting) == (not parks)
        finishes(world)


@pytest.mark.parametrize("pushed_at", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("make", [unwatched, stock])
@IN_EVERY_MODE
def test_continuation_arrives_while_the_turn_before_still_runs(
    make: Callable[..., VllmSessions], asynchronous: bool, depth: int, pushed_at: int
) -> None:
    """vLLM #52693, its race: re-queued for the next chunk while still prefilling the last one."""
    world = make(asynchronous, depth, max_num_batched_tokens=32)
    sessions = [
        world.session(name, range(start, start + 70), "", "x" * 100, "", "z" * 50, "abc")
        for name, start in (("a", 0), ("b", 100))
    ]
    for _ in range(pushed_at):
        world.step()
    for session in sessions:
        world.push_early(session)
    finishes(world)


def stops_while_preempted(make: MakeWorld, depth: int, pad: int) -> World:
    """The other request takes a block in the step in which the session's turn ends."""
    world = make(True, depth, blocks=10, max_model_len=160, prefix_caching=False)
    world.plain("p", range(1000, 1060), "y" * 90)
    world.step()
    world.step()
    world.session("a", range(60), "z" * pad + CALL, " 3]", " done")
    return world


@OURS
@pytest.mark.parametrize("depth", [1, 3])
def test_turn_ends_while_its_session_is_preempted(make: MakeWorld, depth: int) -> None:
    """Akin to vLLM #52693: the last token was in flight when its request lost its blocks."""
    for pad in range(4):
        finishes(stops_while_preempted(make, depth, pad))


@pytest.mark.parametrize("depth", [1, 3])
def test_control_stock_session_that_stops_while_preempted_is_lost(depth: int) -> None:
    """vLLM 0.32 takes it out of every queue: what the client pushes is never scheduled.

    vLLM 0.33 has it right.
    """
    lost = 0
    for pad in range(4):
        world = stops_while_preempted(stock, depth, pad)
        session = world.sessions["a"]
        run_until_paused(world, session)
        world.answer(session)
        for _ in range(200):
            world.step()
        if not session.finished:
            lost += 1
            queued = [*world.scheduler.waiting, *world.scheduler.kv_holding_waiting]
            assert world.scheduler.requests["a"] not in [*queued, *world.scheduler.running]
    assert bool(lost) == (vllm_version[:2] < (0, 33))


# -- asynchronous loads hold blocks and cannot be preempted ---------------------------------------


class HostTier(KVConnectorBase_V1, SupportsHMA):
    """A KV connector that loads asynchronously what the test says the host holds."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.tokens_held: dict[str, int] = {}
        self.undecided: set[str] = set()
        self.loads: dict[str, tuple[list[int], list[int], int]] = {}

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        if request.request_id in self.undecided:
            return None, False
        tokens = self.tokens_held.get(request.request_id, 0) - num_computed_tokens
        return max(tokens, 0), tokens > 0

    def update_state_after_alloc(
        self, request: Request, blocks: Any, num_external_tokens: int
    ) -> None:
        if num_external_tokens:
            end = self.tokens_held[request.request_id]
            tokens = list(request.all_token_ids[:end])
            load = (list(blocks.get_block_ids()[0]), tokens, end - num_external_tokens)
            self.loads[request.request_id] = load

    def build_connector_meta(self, scheduler_output: Any) -> None:
        return None

    def request_finished_all_groups(self, request: Request, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None: ...


class _Loads:
    """Loads write into KV memory when they arrive, whoever owns the blocks by then."""

    arriving = True

    def _run(self, output: Any) -> ModelRunnerOutput:
        ran: ModelRunnerOutput = super()._run(output)  # type: ignore[misc]
        world: Any = self
        arrived = set(world.scheduler.connector.loads) if self.arriving else set()
        for request_id in arrived:
            blocks, tokens, start = world.scheduler.connector.loads.pop(request_id)
            for position, value in list(enumerate(_prefix_hashes(tokens)))[start:]:
                block = blocks[position // world.block_size]
                world._memory.slots[block, position % world.block_size] = value
        ran.kv_connector_output = KVConnectorOutput(finished_recving=arrived)
        return ran

    def check(self) -> None:
        """Aborted requests stay known, in no queue, until their load has arrived."""
        scheduler: Any = self.scheduler  # type: ignore[attr-defined]
        if hasattr(scheduler, "parts"):
            assert scheduler.parts.engine.snapshot()["lost_blocks"] == 0


class WatchedLoads(_Loads, World):
    pass


class StockLoads(_Loads, VllmSessions):
    pass


def with_host(make: MakeWorld, asynchronous: bool, depth: int) -> tuple[Any, HostTier]:
    """A world of 20 blocks with a host tier behind it."""
    ours = CaesuraAsyncScheduler if asynchronous else CaesuraScheduler
    vllms = AsyncScheduler if asynchronous else Scheduler

    def build(*, vllm_config: Any, **options: Any) -> Any:
        vllm_config.kv_transfer_config = KVTransferConfig(
            kv_connector="HostTier", kv_connector_module_path=__name__, kv_role="kv_both"
        )
        if make is stock:
            return vllms(vllm_config=vllm_config, **options)
        given = Dependencies(clock=SteppedClock(), vocabulary=BYTES)
        return ours(vllm_config=vllm_config, **options, dependencies=given)

    scheduler = make_scheduler(
        blocks=20, max_model_len=320, asynchronous=asynchronous, scheduler_class=build
    )
    world = (WatchedLoads if make is watched else StockLoads)(scheduler, depth)
    return world, scheduler.connector


@pytest.mark.parametrize("make", [watched, stock])
@IN_EVERY_MODE
def test_loads_whose_requests_do_not_fit_together(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """vLLM #45388: scheduler dead-locks under pressure when an offloading connector is on.

    vLLM reserves what admitted loads need to finish; nothing of ours may break into that.
    """
    world, host = with_host(make, asynchronous, depth)
    for index in range(4):
        host.tokens_held[f"p{index}"] = 150
        world.plain(f"p{index}", range(index * 1000, index * 1000 + 200), "y" * 60)
    finishes(world)


@pytest.mark.parametrize("make", [watched, stock])
@IN_EVERY_MODE
def test_load_arrives_behind_a_head_that_does_not_fit(
    make: MakeWorld, asynchronous: bool, depth: int
) -> None:
    """vLLM #45388 as it came back (#53868, #57841): the head was deferred and holds nothing."""
    world, host = with_host(make, asynchronous, depth)
    world.arriving = False
    host.undecided.add("head")
    head = world.plain("head", range(300), "y")
    host.tokens_held["load"] = 150
    load = world.plain("load", range(1000, 1180), "y")
    for _ in range(3):
        world.step()
    assert world.scheduler.requests["load"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    host.undecided.clear()
    world.arriving = True
    finishes(world)
    assert head.finished
    assert load.finished


def load_arrives_under_pauses(make: MakeWorld, asynchronous: bool, depth: int) -> Any:
    """A session takes, and keeps over its pause, what the loading request needs for the rest."""
    world, host = with_host(make, asynchronous, depth)
    world.arriving = False
    host.tokens_held["load"] = 90
    world.plain("load", range(1000, 1200), "y" * 20)
    world.step()
    run_until_paused(world, world.session("a", range(100), CALL, "x" * 100, " done"))
    assert world.scheduler.requests["load"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    world.arriving = True
    return world


@IN_EVERY_MODE
def test_load_arrives_and_paused_sessions_hold_the_rest(asynchronous: bool, depth: int) -> None:
    """vLLM #45388 with a pause in the place of the head."""
    world = load_arrives_under_pauses(watched, asynchronous, depth)
    for _ in range(60):
        world.step()
    assert world.sessions["load"].finished
    finishes(world)


def test_control_stock_load_arrives_and_paused_sessions_hold_the_rest() -> None:
    world = load_arrives_under_pauses(stock, False, 0)
    wedges(world, world.sessions["load"])


def session_ahead_of_a_load(make: MakeWorld, asynchronous: bool, depth: int) -> Any:
    """A session with KV comes back, needs more than is free, and stands before an arrived load."""
    world, host = with_host(make, asynchronous, depth)
    session = world.session("a", range(100), CALL, "x" * 100, " done")
    run_until_paused(world, session)
    world.arriving = False
    host.tokens_held["load"] = 150
    world.plain("load", range(1000, 1180), "y")
    for _ in range(depth + 2):
        world.step()
    assert world.scheduler.requests["load"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    world.answer(session)
    world.arriving = True
    return world


@IN_EVERY_MODE
def test_resumed_session_stands_before_an_arrived_load(asynchronous: bool, depth: int) -> None:
    """vLLM #45388 and #49439 at once: a head that holds KV, and holders that it never reaches."""
    finishes(session_ahead_of_a_load(watched, asynchronous, depth))


@IN_EVERY_MODE
def test_control_stock_session_stands_before_an_arrived_load(
    asynchronous: bool, depth: int
) -> None:
    world = session_ahead_of_a_load(stock, asynchronous, depth)
    wedges(world, *world.sessions.values())


@IN_EVERY_MODE
def test_blocks_of_an_aborted_load_are_not_reused_before_it_arrives(
    asynchronous: bool, depth: int
) -> None:
    """A load that arrives late would overwrite the KV of whoever has the blocks by then."""
    world, host = with_host(watched, asynchronous, depth)
    world.arriving = False
    host.tokens_held["load"] = 150
    load = world.plain("load", range(1000, 1180), "y")
    for _ in range(depth + 2):
        world.step()
    world.abort(load)
    session = world.session("a", range(100), CALL, "x" * 100, " done")
    run_until_paused(world, session)
    assert world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() < 12
    world.arriving = True
    world.run()
    leaves_nothing(world)
    assert bytes(session.delivered[:-1]).decode() == CALL + " done"


@pytest.mark.parametrize("depth", [1, 3])
def test_next_chunk_is_queued_when_a_preempted_turn_ends(depth: int) -> None:
    """Akin to vLLM #52693: the next chunk had come before the turn's last token."""
    for pad in range(4):
        world = stops_while_preempted(unwatched, depth, pad)
        assert isinstance(world, VllmSessions)
        world.push_early(world.sessions["a"])
        finishes(world)
