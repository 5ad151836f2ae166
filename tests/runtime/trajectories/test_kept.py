"""Sessions are kept within bounds of number, size and age, each for its owner."""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.kept import KeptSession, KeptSessions, SessionBounds
from caesura.scheduler.programs import Origin
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome


def decode(session: KeptSession, tokens: list[int]) -> None:
    """Let a session sample tokens behind a prompt of one."""
    recorder = session.recorder.beside()
    recorder.begin(LoggedTurn([7]), "user", None)
    recorder.sampled(tokens)
    recorder.end(TurnOutcome("stop"), None)


@dataclass
class Use:
    """What is known of a session, beside what is kept of it."""

    at: float
    tokens: int
    is_lost: bool = False


STEPS = st.tuples(
    st.sampled_from(["ann", "bob", "eve"]),
    st.sampled_from(["", "1", "2", "3", "4"]),
    st.integers(1, 9),
    st.sampled_from(["decode", "decode", "decode", "wait", "delete"]),
)
BOUNDS = st.builds(
    SessionBounds,
    sessions=st.just(5),
    tokens=st.just(30),
    key_sessions=st.sampled_from([None, 1, 4, 9]),
    key_tokens=st.sampled_from([None, 12, 25, 99]),
    seconds=st.just(20),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=40), BOUNDS, st.booleans())
def test_the_bounds_hold_and_who_holds_the_most_gives_way(
    steps: list[tuple[str, str, int, str]], bounds: SessionBounds, one_owner: bool
) -> None:
    asyncio.run(played(steps, bounds, one_owner))


async def played(
    steps: list[tuple[str, str, int, str]], bounds: SessionBounds, one_owner: bool
) -> None:
    world = World(bounds, one_owner)
    for step in enumerate(steps):
        world.play(*step)
        world.check()
    world.sessions.close()
    assert (len(world.sessions), world.sessions.tokens) == (0, 0)
    left = vars(world.sessions)
    assert (left["_shares"], left["_kept"], left["_answers"]) == ({}, {}, 0)


Key = tuple[str, str]
"""The owner of a session, and its name."""


class World:
    """Sessions that are kept, and what should be."""

    def __init__(self, bounds: SessionBounds, one_owner: bool) -> None:
        self.now = 0.0
        self.bounds = bounds
        self.one_owner = one_owner
        self.sessions = KeptSessions(bounds, one_owner=one_owner, clock=lambda: self.now)
        self.known: dict[Key, Use] = {}
        """In the order of their last use."""
        self.names: set[str] = set()
        self.sampled: dict[str, set[int]] = {}
        """By owner."""

    def owner(self, tenant: str) -> str:
        return "" if self.one_owner else tenant

    def play(self, number: int, step: tuple[str, str, int, str]) -> None:
        tenant, name, count, what = step
        self.now += 2**-10  # no two sessions are used at the same time
        answer = f"answer {number}"
        key = (self.owner(tenant), name or answer)
        self.names.add(key[1])
        if what == "wait":
            self.now += count
        elif what == "decode":
            self.decode(Origin(tenant, name), answer, [number + 1] * count)
        elif (found := self.sessions.find(key[1], tenant)) is not None:
            self.sessions.delete(found)
            del self.known[key]
        latest = self.now - self.bounds.seconds
        self.known = {key: use for key, use in self.known.items() if use.at > latest}

    def decode(self, origin: Origin, answer: str, tokens: list[int]) -> None:
        session = self.sessions.of_run(origin, answer)
        decode(session, tokens)
        known, key = self.known, (self.owner(origin.tenant), origin.session or answer)
        self.sampled.setdefault(key[0], set()).update(tokens)
        use = known.pop(key, Use(self.now, 0))
        # A session is made, then grows; both make room.
        known[key] = Use(self.now, use.tokens, use.is_lost)
        self.make_room(key)
        if not known[key].is_lost:
            prompt = int(use.tokens == 0)
            known[key] = Use(self.now, use.tokens + prompt + len(tokens))
        self.make_room(key)

    def make_room(self, used: Key) -> None:
        bounds, known = self.bounds, self.known
        sessions, tokens = bounds.of_key()
        if self.one_owner:
            sessions, tokens = bounds.sessions, bounds.tokens
        own = used[0]
        while self.count(own) > sessions or self.tokens(own) > tokens:
            self.give(own, used)
        while len(known) > bounds.sessions:
            able = {key[0] for key in known if key != used}
            self.give_way(able, self.count, used)
        while sum(each.tokens for each in known.values()) > bounds.tokens:
            self.give_way({key[0] for key in known}, self.tokens, used)

    def give_way(self, owners: set[str], holding: Callable[[str], int], used: Key) -> None:
        """Let one of the owners that hold the most give, the one with the oldest session."""
        most = max(map(holding, owners))
        largest = [each for each in owners if holding(each) == most]
        self.give(next(key[0] for key in self.known if key[0] in largest), used)

    def give(self, owner: str, used: Key) -> None:
        oldest = next((key for key in self.known if key[0] == owner and key != used), None)
        if oldest is None:
            self.known[used] = Use(self.known[used].at, 0, is_lost=True)
        else:
            del self.known[oldest]

    def count(self, owner: str) -> int:
        return sum(key[0] == owner for key in self.known)

    def tokens(self, owner: str) -> int:
        return sum(use.tokens for key, use in self.known.items() if key[0] == owner)

    def check(self) -> None:
        sessions, known = self.sessions, self.known
        for of in ("ann", "bob", "eve"):
            for each in self.names:
                found, key = sessions.find(each, of), (self.owner(of), each)
                assert (found is not None) == (key in known)
                if found is None:
                    continue
                assert (found.owner, found.id) == key
                if not known[key].is_lost:
                    parts = [part for one in found.trajectory().branches for part in one.segments]
                    held = {token for part in parts for token in part.tokens}
                    assert held <= self.sampled[key[0]] | {7}
        assert len(sessions) == len(known) <= self.bounds.sessions
        total = sum(each.tokens for each in known.values())
        assert sessions.tokens == total <= self.bounds.tokens


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12)), max_size=40))
def test_no_session_goes_while_a_key_that_holds_more_has_one(uses: list[tuple[str, int]]) -> None:
    asyncio.run(pushed_out(uses))


async def pushed_out(uses: list[tuple[str, int]]) -> None:
    bounds = SessionBounds(sessions=6, tokens=40, key_sessions=99, key_tokens=99)
    sessions = KeptSessions(bounds)
    kept: dict[str, list[KeptSession]] = {each: [] for each in "abc"}
    for number, (tenant, count) in enumerate(uses):
        made = sessions.of_run(Origin(tenant, str(number)), "answer")
        decode(made, [1] * count)
        kept[tenant].append(made)
        for of, mine in kept.items():
            gone = [each for each in mine if sessions.find(each.id, of) is not each]
            assert gone == mine[: len(gone)]  # the oldest go first
            del mine[: len(gone)]
            if not gone:
                continue
            for other, theirs in kept.items():
                theirs = [each for each in theirs if sessions.find(each.id, other) is each]
                if other != of and theirs != [made]:
                    fewer = len(theirs) <= len(mine) + len(gone)
                    less = sum(each.counted for each in theirs) <= sum(
                        each.counted for each in (*mine, *gone)
                    )
                    assert fewer or less
    sessions.close()


async def test_a_key_does_not_push_out_anothers() -> None:
    sessions = KeptSessions(SessionBounds(sessions=10, tokens=100))
    mine = sessions.of_run(Origin("ann", "s"), "a")
    decode(mine, [1] * 20)
    for number in range(50):
        decode(sessions.of_run(Origin("bob", str(number)), "b"), [2] * 20)
    assert sessions.find("s", "ann") is mine and len(mine.trajectory().rollout().ids) == 21
    assert [sessions.find(str(each), "bob") is not None for each in (47, 48, 49)] == [0, 1, 1]
    sessions.close()


async def test_what_is_deleted_leaves_nothing_in_memory() -> None:
    sessions = KeptSessions(SessionBounds())

    def filled() -> "list[weakref.ref[KeptSession]]":
        made = []
        for number in range(20):
            for turn in range(50):
                session = sessions.of_run(Origin("ann", f"s{number}"), f"a{number}/{turn}")
                decode(session, [turn] * 400)
            child = sessions.of_run(Origin("ann", f"c{number}", session.id), "child")
            decode(child, [1] * 400)
            assert sessions.name_of(f"a{number}/7", "ann") == session.id
            made += [weakref.ref(session), weakref.ref(child)]
        for number in range(20):
            found = sessions.find(f"s{number}", "ann")
            assert found is not None
            sessions.delete(found)
        return made

    filled()  # what is made once, and stays
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        gc.disable()  # nothing waits for a collection
        gone = filled()
        left, most = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    assert [each() for each in gone] == [None] * 40
    assert (len(sessions), sessions.tokens) == (0, 0)
    assert most - before > 20 * 50 * 400 * 4 and left - before < 50 * 400 * 4
    sessions.close()


async def test_a_run_whose_session_was_deleted_keeps_no_tokens() -> None:
    sessions = KeptSessions(SessionBounds())
    session = sessions.of_run(Origin("ann", "s"), "a")
    recorder = session.recorder.beside()
    recorder.begin(LoggedTurn([7]), "user", None)
    recorder.sampled([1, 2])
    sessions.delete(session)
    recorder.sampled([3])
    recorder.end(TurnOutcome("stop"), None)
    assert (recorder.tokens, sessions.tokens, len(sessions)) == (0, 0, 0)
    decode(sessions.of_run(Origin("ann", "s"), "a"), [4])
    assert sessions.tokens == 2
    sessions.close()


async def test_answers_are_bounded_by_key_too(monkeypatch: Any) -> None:
    monkeypatch.setattr("caesura.runtime.trajectories.kept.MAX_ANSWERS", 10)
    sessions = KeptSessions(SessionBounds())
    sessions.of_run(Origin("ann", "s"), "mine")
    for number in range(50):
        sessions.of_run(Origin("bob", "s"), str(number))
    assert sessions.name_of("mine", "ann") == "s"
    found = [sessions.name_of(str(each), "bob") for each in range(50)]
    assert found == [""] * 41 + ["s"] * 9
    sessions.of_run(Origin("bob", "t"), "49")
    assert sessions.name_of("49", "bob") == "t"
    for name in "st":
        there = sessions.find(name, "bob")
        assert there is not None
        sessions.delete(there)
    assert sessions.name_of("49", "bob") == "" and sessions.name_of("mine", "ann") == "s"
    sessions.close()


async def test_what_is_too_large_alone_says_so() -> None:
    sessions = KeptSessions(SessionBounds(tokens=10), one_owner=True)
    session = sessions.of_run(Origin("ann", "s"), "a")
    decode(session, [1] * 20)
    try:
        session.trajectory()
    except UsageError as error:
        assert str(error).endswith("it has more than 10 tokens, the most that are kept")
    else:
        raise AssertionError("the tokens are kept")
    assert (sessions.tokens, session.recorder.tokens) == (0, 0)
    decode(session, [1] * 20)
    assert sessions.tokens == 0
    sessions.close()


async def test_old_sessions_go_without_a_request() -> None:
    now = 0.0
    sessions = KeptSessions(SessionBounds(seconds=5), clock=lambda: now)
    session = sessions.of_run(Origin("ann", "s"), "a")
    decode(session, [1])
    now = 4.0
    sessions._look()
    assert len(sessions) == 1
    now = 5.0
    sessions._look()
    assert (len(sessions), sessions.tokens) == (0, 0)
    sessions.close()


async def test_a_sub_agent_keeps_its_parents_and_a_circle_of_parents_ends() -> None:
    now = 0.0
    sessions = KeptSessions(SessionBounds(seconds=5), clock=lambda: now)
    parent = sessions.of_run(Origin("ann", "p", "c"), "a")
    child = sessions.of_run(Origin("ann", "c", "p"), "b")
    assert sessions.below(parent) == [child] and sessions.below(child) == [parent]
    now = 4.0
    decode(child, [1])
    now = 8.0
    assert sessions.find("p", "ann") is parent
    assert sessions.find("b", "ann") is child and sessions.name_of("b", "ann") == "c"
    assert sessions.find("p", "bob") is None
    assert sessions.find("p", "bob", everybodys=True) is parent
    sessions.delete(parent)
    assert len(sessions) == 0
    sessions.close()


async def test_recorders_beside_each_other_grow_one_tree() -> None:
    """Nothing follows a turn that is under way."""
    session = KeptSession("s", Origin("ann", "s"), "ann", 0)
    one, other, third = (session.recorder.beside() for _ in range(3))
    one.begin(LoggedTurn([1, 2]), "user", None)
    one.sampled([3])
    other.begin(LoggedTurn([1, 2, 3]), "user", None)
    other.sampled([4])
    one.sampled([5])
    one.end(TurnOutcome("stop"), None)
    other.leave()
    third.begin(LoggedTurn([1, 2, 3, 5, 6]), "user", None)
    third.sampled([7])
    made = session.trajectory()
    assert [rollout.ids for rollout in made.rollouts()] == [(1, 2, 3, 5, 6, 7), (1, 2, 3, 4)]
    assert (made.branches[1].parent, made.branches[1].branch_point) == (made.branches[0].id, 3)
    assert session.recorder.tokens == 7
