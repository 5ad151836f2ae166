"""A turn that another engine began: its watch and its grammar read what was sampled there."""

from concurrent.futures import Future
from typing import Any

import pytest
from vllm.v1.request import Request

from caesura.scheduler.vllm.wire import REPLAYED_KEY
from tests.scheduler.invariants import leaves_nothing
from tests.scheduler.spelled import CALL, MODES, GrammarWorld, Spelled, make, said_as_planned, until

from .world import World, make_scheduler

PROMPT = range(40)
TEXT = CALL.encode()


class _Going:
    """A world whose sessions stand within their first turn when they come."""

    replayed: Any = 0

    def _request(self, *args: Any, **options: Any) -> Request:
        request: Request = super()._request(*args, **options)  # type: ignore[misc]
        params = request.sampling_params
        assert params is not None
        if self.replayed and request.resumable:
            params.extra_args = {**(params.extra_args or {}), REPLAYED_KEY: self.replayed}
            self.replayed = 0
        return request


class GoingWorld(_Going, World):
    """Sessions without grammars."""


class GoingGrammars(_Going, GrammarWorld):
    """Sessions with grammars."""


@pytest.mark.parametrize("count", range(1, len(TEXT)))
def test_a_call_pauses_wherever_its_engine_died(count: int) -> None:
    world = GoingWorld(make_scheduler())
    world.replayed = count
    begun, rest = TEXT[:count], TEXT[count:].decode()
    session = world.session("a", [*PROMPT, *begun], rest, "3]", " done")
    until(world, lambda: session.paused)
    assert world.parts.manager.paused_kvs["a"].tool == "calc"
    world.run()
    said_as_planned(world)
    assert [report["paused"] for report in session.reports] == [True, False]
    leaves_nothing(world)


def test_without_the_tokens_of_the_turn_the_call_would_not_be_seen() -> None:
    """The control: the watch reads only what the prompt is said to hold of the turn."""
    world = GoingWorld(make_scheduler())
    session = world.session("a", [*PROMPT, *TEXT[:8]], TEXT[8:].decode(), "3]", " done")
    for _ in range(60):
        world.step()
    assert not any(report["paused"] for report in session.reports)


@pytest.mark.parametrize("compiles_late", [False, True])
@pytest.mark.parametrize("count", [1, 7, len(TEXT) - 1])
@MODES
def test_a_grammar_goes_on_where_its_engine_died(
    asynchronous: bool, depth: int, count: int, compiles_late: bool
) -> None:
    world = make(asynchronous, depth, (True, False, True), GoingGrammars)
    world.replayed = count
    whole: Future[Any] = Future()
    world.compiling[0] = whole if compiles_late else Spelled(TEXT)
    world.session("a", [*PROMPT, *TEXT[:count]], TEXT[count:].decode(), "3]", " done")
    if compiles_late:
        world.step()
        whole.set_result(Spelled(TEXT))
    world.run()
    said_as_planned(world)
    leaves_nothing(world)
    assert world.masked >= len(TEXT) - count


def test_a_grammar_that_refuses_what_there_is_ends_its_request_only() -> None:
    world = make(False, 0, (True, False), GoingGrammars)
    world.replayed = 3
    world.compiling[0] = Spelled(b"other")  # type: ignore[assignment]
    world._check = lambda *_: None  # the other request has no grammar
    session = world.session("a", [*PROMPT, *TEXT[:3]], "x", "3]", " done")
    other = world.plain("b", range(100, 120))
    for _ in range(40):
        world.step()
    assert session.finished and other.finished
    leaves_nothing(world)


@pytest.mark.parametrize("count", [-1, 1000, True, "3", 2.0, [1]])
def test_a_number_that_makes_no_sense_leaves_the_request_unwatched(count: Any) -> None:
    """A client of a stock server may set it; the engine goes on."""
    world = GoingWorld(make_scheduler())
    world.replayed = count
    session = world.session("a", PROMPT, "no call", watched=True)
    other = world.plain("b", range(100, 120))
    for _ in range(40):
        world.step()
    assert other.finished
    assert session.delivered == [*b"no call", session.parts[0][-1]]
