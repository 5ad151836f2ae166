"""Grammars of a session's turns: each turn has that of its own chunk.

The fake grammar allows one text only, so that a token which the wrong grammar saw, or which none
saw, shows at once.
"""

from concurrent.futures import Future
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from caesura.scheduler.vllm.wire import WHOLE_TURN_KEY
from tests.scheduler.invariants import leaves_nothing
from tests.scheduler.spelled import CALL, MODES, Spelled, _Grammars, make, said_as_planned, until
from tests.scheduler.unwatched import VllmSessions

TURNS = (CALL, "1]", CALL, "2]", " done")


class GrammarSessions(_Grammars, VllmSessions):
    """Sessions of vLLM's own clients, which may push a chunk while a turn still runs."""


PATTERNS = pytest.mark.parametrize(
    "constrained",
    [
        pytest.param((True, False, True), id="101"),
        pytest.param((False, True, False), id="010"),
        pytest.param((True, True, True), id="111"),
        pytest.param((False, False, True), id="001"),
    ],
)


@PATTERNS
@MODES
def test_each_turn_has_its_own_grammar(
    asynchronous: bool, depth: int, constrained: tuple[bool, ...]
) -> None:
    world = make(asynchronous, depth, constrained)
    for index in range(3):
        world.session(f"s{index}", range(index, index + 40), *TURNS)
    world.run()
    said_as_planned(world)
    leaves_nothing(world)
    assert world.masked >= 3 * sum(constrained)


@pytest.mark.parametrize("constrained", [(True, False, False), (False, True, False)])
def test_vllms_own_scheduler_drops_them(constrained: tuple[bool, ...]) -> None:
    """The control: these worlds notice what stock vLLM does."""
    world = make(False, 0, constrained, GrammarSessions, scheduler_class=Scheduler)
    world.session("a", range(40), *TURNS)
    with pytest.raises(AssertionError, match="not the grammar of turn"):
        world.run()


@MODES
def test_a_dropped_kv_cache_changes_nothing(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (True, True, True))
    session = world.session("a", range(100), *TURNS)
    until(world, lambda: session.paused)
    world.drain()
    world.drop_kv("a")
    world.answer(session)
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


@PATTERNS
@MODES
def test_preemptions_change_nothing(
    asynchronous: bool, depth: int, constrained: tuple[bool, ...]
) -> None:
    world = make(asynchronous, depth, constrained, blocks=16, max_model_len=240, block_size=8)
    preempted = 0
    for index in range(6):
        world.session(f"s{index}", range(index * 100, index * 100 + 20), *TURNS)
    for _ in range(800):
        if all(session.finished for session in world.sessions.values()):
            break
        world.step()
        preempted += len(world.last.preempted_req_ids or ())
        for session in world.sessions.values():
            if session.paused and not session.finished:
                world.answer(session)
    assert preempted
    said_as_planned(world)
    leaves_nothing(world)


@MODES
def test_a_turn_waits_for_its_grammar_and_nobody_else_does(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (False, True, False))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    other = world.plain("b", range(200, 240))
    until(world, lambda: other.finished)
    turn = session.parts[2]
    assert session.delivered == session.parts[0]
    world.compiling[1].set_result(Spelled(turn))
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


@MODES
def test_a_grammar_that_fails_ends_its_request_only(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (False, True, False))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    other = world.plain("b", range(200, 240))
    world.compiling[1].set_exception(ValueError("no such grammar"))
    until(world, lambda: session.finished and other.finished)
    leaves_nothing(world)


@MODES
def test_an_abort_while_the_grammar_compiles(asynchronous: bool, depth: int) -> None:
    world = make(asynchronous, depth, (True, True, True))
    world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    until(world, lambda: session.paused)
    world.answer(session)
    world.step()
    world.abort(session)
    leaves_nothing(world)


@MODES
def test_tokens_that_the_grammar_refuses_end_the_request(asynchronous: bool, depth: int) -> None:
    """vLLM then no longer counts it as a session, and its client still closes its input."""
    world = make(asynchronous, depth, (True, False, False))
    wrong: Future[Any] = Future()
    wrong.set_result(Spelled([*CALL[:4].encode(), ord("?")]))
    world.compiling[0] = wrong
    session = world.session("a", range(40), *TURNS)
    world._check = lambda *_: None  # this model ignores its mask
    until(world, lambda: session.finished)
    leaves_nothing(world)


@pytest.mark.parametrize("compiled", [True, False])
@MODES
def test_a_chunk_that_comes_before_its_turn(asynchronous: bool, depth: int, compiled: bool) -> None:
    """A step of the turn before may be in flight when the chunk's grammar takes over."""
    world = make(asynchronous, depth, (True, True, False), GrammarSessions)
    if not compiled:
        world.compiling[1] = Future()
    session = world.session("a", range(40), *TURNS)
    for _ in range(3):
        world.step()
    world.push_early(session)
    for _ in range(60):
        world.step()
    if not compiled:
        assert session.delivered == session.parts[0]
        world.compiling[1].set_result(Spelled(session.parts[2]))
    world.run()
    said_as_planned(world)
    leaves_nothing(world)


def test_a_grammar_of_the_whole_turn_does_not_wait_for_the_end_of_thinking() -> None:
    world = make(False, 0, (True, True, False))
    made = world._request

    def request(*args: Any, **options: Any) -> Request:
        one: Request = made(*args, **options)
        if one.resumable and one.sampling_params is not None:
            one.sampling_params.extra_args = {
                **(one.sampling_params.extra_args or {}),
                WHOLE_TURN_KEY: len(world.sessions["a"].delivered) > 0,
            }
        return one

    world._request = request
    session = world.session("a", range(40), *TURNS)
    alive = world.scheduler.requests["a"]
    assert alive.structured_output_request.reasoning_ended is None
    until(world, lambda: session.paused)
    world.answer(session)
    assert alive.structured_output_request.reasoning_ended is True
