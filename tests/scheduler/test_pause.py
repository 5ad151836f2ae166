"""Pausing and resuming in vLLM's real scheduler, around a fake runner (see `world`)."""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from caesura.scheduler.vllm.engine.admission import StepAdmission

from .world import World, make_scheduler

CALL = "sum [calc(1+2) ->"
MODES = [
    pytest.param(False, 0, id="sync"),
    pytest.param(False, 1, id="pipeline-2"),
    pytest.param(False, 3, id="pipeline-4"),
    pytest.param(True, 0, id="async-0"),
    pytest.param(True, 1, id="async-1"),
    pytest.param(True, 3, id="async-3"),
]


def make_world(asynchronous: bool = False, depth: int = 0, **options: object) -> World:
    stages = 1 if asynchronous else depth + 1
    return World(make_scheduler(asynchronous=asynchronous, stages=stages, **options), depth)


def run_until_paused(world: World, *sessions: object) -> None:
    for _ in range(200):
        world.step()
        if all(session.paused for session in sessions):
            world.drain()
            return
    raise AssertionError("not paused")


@pytest.mark.parametrize(("asynchronous", "depth"), MODES)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_pauses_at_the_token_and_goes_on(
    asynchronous: bool, depth: int, prefix_caching: bool
) -> None:
    world = make_world(asynchronous, depth, prefix_caching=prefix_caching)
    session = world.session("a", range(40), CALL, " 3]", " is [calc(3*3) ->", " 9]", " done")
    run_until_paused(world, session)
    assert bytes(session.delivered).decode() == CALL
    world.run()
    assert bytes(session.delivered[:-1]).decode() == CALL + " is [calc(3*3) ->" + " done"
    assert [report["verdict"] for report in session.reports] == ["call", "call", "end"]
    assert world.scheduler.requests == {}
    assert not world.scheduler.parts.stops.closing


@pytest.mark.parametrize(("asynchronous", "depth"), MODES)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_dropped_kv_is_recomputed(asynchronous: bool, depth: int, prefix_caching: bool) -> None:
    world = make_world(asynchronous, depth, prefix_caching=prefix_caching)
    session = world.session("a", range(100), CALL, " 3]", " done")
    run_until_paused(world, session)
    world.drop_kv("a")
    world.check()
    free = world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    assert free == 100
    world.run()
    resume = session.reports[-1]["resume"]
    assert resume["handling"] == "discard"
    assert resume["context_tokens"] == 100 + len(CALL) - 1
    assert resume["cached_tokens"] == (112 if prefix_caching else 0)


def test_preserved_kv_is_not_recomputed() -> None:
    world = make_world()
    session = world.session("a", range(100), CALL, " 3]", " done")
    run_until_paused(world, session)
    world.now += 5
    world.run()
    resume = session.reports[-1]["resume"]
    assert resume["handling"] == "preserve"
    assert resume["cached_tokens"] == resume["context_tokens"] == 100 + len(CALL) - 1
    assert resume["pause_seconds"] >= 5


def test_turn_without_a_call_frees_everything_at_once() -> None:
    world = make_world()
    session = world.session("a", range(40), "no call here")
    world.run()
    assert session.reports[-1] == {"paused": False, "verdict": "end", "resume": None}
    pool = world.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == 100
    assert not world.scheduler.has_requests() or world.step() == 0


@pytest.mark.parametrize("stage", ["waiting", "running", "paused", "dropped", "resuming"])
@pytest.mark.parametrize(("asynchronous", "depth"), MODES)
def test_abort_from_any_state_frees_everything(asynchronous: bool, depth: int, stage: str) -> None:
    world = make_world(asynchronous, depth)
    session = world.session("a", range(60), CALL, " 3]", " done")
    if stage == "running":
        for _ in range(5):
            world.step()
    elif stage != "waiting":
        run_until_paused(world, session)
        if stage == "dropped":
            world.drop_kv("a")
        if stage == "resuming":
            world.answer(session)
    world.abort(session)
    for _ in range(depth + 2):
        world.step()
    world.drain()
    scheduler = world.scheduler
    assert scheduler.requests == {}
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 100
    assert not scheduler.parts.served
    assert not scheduler.parts.served.paused
    assert not scheduler.parts.stops.closing
    assert scheduler.num_waiting_for_streaming_input == 0
    assert scheduler.get_num_unfinished_requests() == 0


def test_paused_sessions_do_not_hold_running_slots() -> None:
    """vLLM's own sessions do: with two paused and max_num_seqs=2 a third request is stuck."""
    world = make_world(max_num_seqs=2)
    sessions = [world.session(name, range(40), CALL, " 3]", " done") for name in "ab"]
    run_until_paused(world, *sessions)
    other = world.plain("c", range(30))
    for _ in range(10):
        world.step()
    assert other.finished


def test_control_stock_sessions_hold_running_slots() -> None:
    """The test above can fail: vLLM's own scheduler fails it."""
    world = make_world(max_num_seqs=2, scheduler_class=Scheduler)
    for name in "ab":
        world.session(name, range(40), "stops here", " x", " done", watched=False)
    for _ in range(40):
        world.step()
    other = world.plain("c", range(30))
    for _ in range(50):
        world.step()
    assert not other.finished


def test_paused_blocks_go_to_whoever_needs_them() -> None:
    """vLLM's own sessions keep them for ever: the other request would wait as long as the tool."""
    world = make_world(blocks=20)
    sessions = [
        world.session(name, range(i * 7, i * 7 + 110), CALL, " 3]", " done")
        for i, name in enumerate("ab")
    ]
    run_until_paused(world, *sessions)
    other = world.plain("c", range(1000, 1200))
    world.step()
    assert world.scheduler.requests["c"].status == RequestStatus.RUNNING
    world.run()
    assert other.finished
    assert "discard" in {session.reports[-1]["resume"]["handling"] for session in sessions}


def test_the_longest_pause_pays_first() -> None:
    world = make_world(blocks=20)
    old = world.session("old", range(100), CALL, " 3]", " done")
    run_until_paused(world, old)
    world.now += 100
    young = world.session("young", range(500, 600), CALL, " 3]", " done")
    run_until_paused(world, young)
    world.plain("c", range(1000, 1090))
    world.step()
    pauses = world.scheduler.parts.served.paused
    assert not pauses["old"].pause.held
    assert pauses["young"].pause.held


def test_nothing_is_reclaimed_without_need() -> None:
    world = make_world(blocks=100)
    session = world.session("a", range(100), CALL, " 3]", " done")
    run_until_paused(world, session)
    for index in range(5):
        world.plain(f"p{index}", range(index * 100, index * 100 + 100))
    for _ in range(10):
        world.step()
    assert world.parts.served["a"].pause.held


def all_come_back_at_once(asynchronous: bool, depth: int) -> World:
    world = make_world(asynchronous, depth, blocks=30, max_model_len=448)
    sessions = [
        world.session(f"s{index}", range(index * 5, index * 5 + 90), CALL, "x" * 200, " done")
        for index in range(12)
    ]
    for _ in range(300):
        world.step()
        if all(session.paused for session in sessions):
            break
    assert all(session.paused for session in sessions)
    for session in sessions:
        world.answer(session)
    return world


@pytest.mark.parametrize(("asynchronous", "depth"), MODES)
def test_sessions_that_all_come_back_at_once_do_not_wedge(asynchronous: bool, depth: int) -> None:
    """The dead-lock of vLLM's stock sessions: each holds blocks, none can get the rest."""
    world = all_come_back_at_once(asynchronous, depth)
    world.run(1000)
    assert world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 30


def test_progress_even_if_the_prediction_were_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing runs and somebody is ready: everything else gives way."""
    world = make_world(blocks=20, max_model_len=320)
    for index in range(2):
        tokens = range(index * 1000, index * 1000 + 120)
        world.session(f"s{index}", tokens, CALL, "x" * 100, " done")
    run_until_paused(world, *world.sessions.values())
    monkeypatch.setattr(StepAdmission, "prepare", lambda self, kept_slots: None)
    for session in world.sessions.values():
        world.answer(session)
    world.run(300)
    assert "nothing could be scheduled" in caplog.text


@pytest.mark.parametrize("depth", [1, 2])
def test_paused_while_preempted(depth: int) -> None:
    """The token that completes the call was in flight when its request lost its blocks."""
    world = make_world(True, depth)
    session = world.session("a", range(60), CALL, " 3]", " done")
    request = world.scheduler.requests["a"]
    while request.num_computed_tokens < 60 + len(CALL) - 1:
        world.step()
    world.scheduler.running.remove(request)
    world.scheduler._preempt_request(request, 0.0)
    for _ in range(depth + 1):
        world.step()
    assert session.paused
    assert bytes(session.delivered).decode() == CALL
    world.run()
    assert bytes(session.delivered[:-1]).decode() == CALL + " done"
    assert session.reports[-1]["resume"]["handling"] == "discard"


def test_running_requests_take_paused_blocks_before_they_preempt() -> None:
    world = make_world(blocks=10)
    paused = world.session("a", range(60), CALL, " 3]", " done")
    run_until_paused(world, paused)
    runner = world.plain("b", range(500, 560), "y" * 60)
    for _ in range(80):
        world.step()
    assert runner.finished
    assert not world.parts.served["a"].pause.held


def test_resets_the_prefix_cache_under_paused_sessions() -> None:
    world = make_world()
    session = world.session("a", range(60), CALL, " 3]", " done")
    run_until_paused(world, session)
    assert world.scheduler.reset_prefix_cache()
    world.run()
    assert session.reports[-1]["resume"]["cached_tokens"] == 0


def test_a_bad_plan_runs_unwatched(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world()
    world.session("a", range(20), "text").formats = ("nonsense",)
    request = world._request("bad", [1, 2, 3], False, None)
    request.sampling_params.extra_args = {"caesura_watch": {"formats": ["nonsense"]}}
    world.scheduler.add_request(request)
    assert "unknown call format" in caplog.text
    assert "bad" in world.scheduler.requests


def test_control_messages_are_answered_and_not_enqueued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAESURA_CONTROL_SECRET", "told to nobody")
    world = make_world()
    for name, command in (("ctl-1", "state"), ("ctl-2", "dance")):
        request = world._request(name, [0], False, None)
        request.sampling_params.extra_args = {
            "caesura_control": command,
            "caesura_control_secret": "told to nobody",
        }
        world.scheduler.add_request(request)
    assert world.scheduler.has_requests()
    outputs = world.scheduler.update_from_output(
        world.scheduler.schedule(), world._run(world.scheduler.schedule())
    )
    replies = {o.request_id: o.kv_transfer_params["caesura"] for o in outputs[0].outputs}
    assert replies["ctl-1"]["blocks_free"] == 100
    assert "known: state" in replies["ctl-2"]["error"]
    assert not world.scheduler.has_requests()
