"""Sessions are kept within bounds of number, size and age, each for its owner."""

import asyncio
from dataclasses import dataclass

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
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["", "1", "2", "3", "4"]),
    st.integers(1, 9),
    st.sampled_from(["decode", "decode", "decode", "wait", "delete"]),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=40))
def test_the_bounds_hold_and_the_oldest_go_first(
    steps: list[tuple[str, str, int, str]],
) -> None:
    asyncio.run(played(steps))


async def played(steps: list[tuple[str, str, int, str]]) -> None:
    world = World()
    for step in enumerate(steps):
        world.play(*step)
        world.check()
    world.sessions.close()
    assert (len(world.sessions), world.sessions.tokens) == (0, 0)


class World:
    """Sessions that are kept, and what should be."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bounds = SessionBounds(sessions=4, tokens=30, seconds=20)
        self.sessions = KeptSessions(self.bounds, clock=lambda: self.now)
        self.known: dict[tuple[str, str], Use] = {}
        """In the order of their last use."""
        self.names: set[str] = set()

    def play(self, number: int, step: tuple[str, str, int, str]) -> None:
        tenant, name, count, what = step
        answer = f"answer {number}"
        key = (tenant, name or answer)
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
        known, key = self.known, (origin.tenant, origin.session or answer)
        use = known.pop(key, Use(self.now, 0))
        prompt = int(use.tokens == 0)
        more = 0 if use.is_lost else prompt + len(tokens)
        known[key] = Use(self.now, use.tokens + more, use.is_lost)
        while len(known) > self.bounds.sessions:
            del known[next(iter(known))]
        while sum(each.tokens for each in known.values()) > self.bounds.tokens:
            oldest = next(iter(known))
            if oldest == key:
                known[key] = Use(self.now, 0, is_lost=True)
            else:
                del known[oldest]

    def check(self) -> None:
        sessions, known = self.sessions, self.known
        for of in ("ann", "bob"):
            for each in self.names:
                found = sessions.find(each, of)
                assert (found is not None) == ((of, each) in known)
                assert found is None or (found.owner, found.id) == (of, each)
        assert len(sessions) == len(known) <= self.bounds.sessions
        total = sum(each.tokens for each in known.values())
        assert sessions.tokens == total <= self.bounds.tokens


async def test_what_is_too_large_alone_says_so() -> None:
    sessions = KeptSessions(SessionBounds(tokens=10))
    session = sessions.of_run(Origin("ann", "s"), "a")
    decode(session, [1] * 20)
    try:
        session.trajectory()
    except UsageError as error:
        assert "it has more than 10 tokens, the most that are kept" in str(error)
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
