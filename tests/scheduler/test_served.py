"""The stages of sessions: the table of them, and worlds of clients that take every way of it."""

import random
from collections import Counter

import pytest

from caesura.intercept.calls.formats import resolve
from caesura.scheduler.vllm.engine.sessions.served import (
    TRANSITIONS,
    Event,
    IllegalEvent,
    SessionState,
    Stage,
)
from tests.scheduler.clients import clients_act
from tests.scheduler.steering import HERMES
from tests.scheduler.unwatched import VllmSessions

from .invariants import check_stages
from .world import Session, World, make_scheduler


def some_session() -> SessionState:
    scheduler = make_scheduler()
    World(scheduler).session("a", range(20), "done")
    session: SessionState = scheduler.parts.sessions["a"]
    return session


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("event", Event)
def test_an_event_leads_where_the_table_says_or_nowhere(stage: Stage, event: Event) -> None:
    session = some_session()
    session.stage = stage
    stages, following = TRANSITIONS[event]
    if stage in stages:
        session.take(event)
        assert session.stage is following
    else:
        with pytest.raises(IllegalEvent, match=f"session a: no event '{event.value}'"):
            session.take(event)
        assert session.stage is stage


def test_the_table_has_every_event_and_no_way_out_of_an_end() -> None:
    assert set(TRANSITIONS) == set(Event)
    lead_on = {stage for stages, _ in TRANSITIONS.values() for stage in stages}
    assert lead_on == set(Stage) - {Stage.ENDED, Stage.ABORTED}


RARE = {(Stage.QUEUED, Event.LEAVE), (Stage.QUEUED, Event.CONTINUE)}
"""Turns that end with the last token in flight, just when running requests took the blocks."""


def watched_clients(seed: int, asynchronous: bool, depth: int) -> None:
    """Clients come, leave at calls, follow up and give up; every stage is where vLLM's is."""
    rng = random.Random(seed)
    options = {"blocks": rng.choice([34, 45]), "max_num_seqs": rng.choice([4, 8])}
    formats = resolve(("hermes",), ())
    scheduler = make_scheduler(asynchronous=asynchronous, formats=formats, **options)
    world = World(scheduler, depth)
    for index in range(150):
        clients_act(world, rng, index)
        for session in list(world.sessions.values()):
            if not session.parts[0] or rng.random() > 0.1:
                continue
            if session.paused and not session.finished:
                session.finished = True  # its client sends the result in a new request
                world.aborted.add(session.request_id)
                world.goodbye(session)
                follow_up(world, session, index)
            elif session.request_id.startswith("calls") and session.reports:
                session.reports.clear()
                follow_up(world, session, index)
        if rng.random() < 0.2:
            world.plain(f"calls-{index}", range(index, index + 60), HERMES)
        check_stages(scheduler)
    world.run(3000)
    check_stages(scheduler)


def follow_up(world: World, session: Session, index: int) -> None:
    name = f"{session.request_id}-{index}"
    if name not in world.sessions:
        world.plain(name, [*session.prompt, *session.parts[0], *b"r" * 20], "well")


def unwatched_clients(seed: int, asynchronous: bool, depth: int) -> None:
    """Clients of vLLM's own sessions send some chunks before the turn before has ended."""
    rng = random.Random(seed)
    world = VllmSessions(make_scheduler(asynchronous=asynchronous, blocks=40), depth)
    for index in range(20):
        world.session(
            f"s{index}", range(index * 9, index * 9 + 60), "one", "two", "three", "4", "5"
        )
    for _ in range(3000):
        if all(session.finished for session in world.sessions.values()):
            return
        world.step()
        check_stages(world.scheduler)
        for session in world.sessions.values():
            request = world.scheduler.requests.get(session.request_id)
            if session.finished or request is None:
                continue
            early = not request.streaming_queue and session.position + 1 < len(session.parts)
            if session.paused or (early and rng.random() < 0.1):
                world.push_early(session)
    raise AssertionError("not finished")


def test_worlds_of_clients_take_every_way_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[Stage, Event]] = Counter()
    take = SessionState.take

    def counted(session: SessionState, event: Event) -> None:
        seen[session.stage, event] += 1
        take(session, event)

    monkeypatch.setattr(SessionState, "take", counted)
    for seed in range(2):
        for asynchronous, depth in ((False, 0), (True, 1), (True, 3)):
            watched_clients(seed, asynchronous, depth)
            unwatched_clients(seed, asynchronous, depth)
    table = {(stage, event) for event, (stages, _) in TRANSITIONS.items() for stage in stages}
    assert table - RARE <= set(seen) <= table
