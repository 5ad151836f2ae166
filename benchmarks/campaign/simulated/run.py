"""One run: an engine with a few hundred sessions, faults at every step, and what must hold."""

import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.campaign.report import Defect, Outcome
from caesura.intercept.pause_hints import PauseHint
from tests.scheduler.invariants import check_all, check_rest
from tests.scheduler.layouts import LAYOUTS
from tests.scheduler.remains import remains
from tests.scheduler.world import END, Session

from .faults import TENANTS, Faults
from .worlds import LENGTH, TINY, Machine, MortalWorld, heal

CALL = "[calc(1) ->"
OTHER = "[tool(7) ->"
HERMES = '<tool_call>{"name": "calc", "arguments": {}}</tool_call>'
SESSIONS = 250
"""Sessions of one run."""
STEPS = 30_000
"""Steps in which all sessions must end once the faults are over; a wedge needs more."""


@dataclass(slots=True)
class Client:
    """What the tool of a session does: the chance that it returns in a step."""

    pace: float


class Run:
    """One engine and its clients."""

    def __init__(self, seed: int, index: int, layouts: Sequence[str] = LAYOUTS) -> None:
        """Draw the engine and its clients; the same numbers and layouts make the same run."""
        self.rng = random.Random(f"{seed}/{index}")
        self.world = MortalWorld(Machine.drawn(self.rng, layouts))
        self.faults = Faults(self.world, self.rng)
        self.clients: dict[str, Client] = {}
        self.crowd = self.rng.choice([8, 24, 24, 40])
        self.busy = self.rng.choice([0.1, 0.3, 0.9])
        self.harsh = self.rng.choice([0.1, 0.5, 1.0])

    def go(self, sessions: int) -> None:
        """Let clients come under faults, and then come to rest; raises what breaks on the way."""
        rng, world = self.rng, self.world
        while len(self.clients) < sessions:
            if rng.random() < self.busy and self._waiting() < self.crowd:
                self._arrive(len(self.clients))
            if rng.random() < self.harsh:
                self.faults.strike()
            self._step(rng.random() < 0.1)
        self.faults.world.fails = lambda: False
        heal(world.link)
        self._until(lambda: not self._waiting())
        self._until(lambda: not world.scheduler.has_requests())
        world.now += 1e4  # what is kept for follow-ups goes
        self._step(True)
        world.drain()
        self._step(True)
        world.drain()

    def _waiting(self) -> int:
        return sum(not session.finished for session in self.world.sessions.values())

    def _until(self, there: Callable[[], bool]) -> None:
        for count in range(STEPS):
            if there():
                return
            self._step(count % 16 == 0, 1.0)
        raise Wedged(f"{self._waiting()} sessions stand still: {self._stuck()}")

    def _stuck(self) -> list[tuple[str, str]]:
        left = [one for one in self.world.sessions.values() if not one.finished]
        return [(one.request_id, self.faults.state_of(one)) for one in left[:5]]

    def _step(self, check: bool, least: float = 0.0) -> None:
        world, rng = self.world, self.rng
        world.step()
        if check:
            check_all(world)
        for session in list(world.sessions.values()):
            if session.paused and not session.finished:
                pace = max(least, self.clients[session.request_id].pace)
                if rng.random() < pace:
                    world.answer(session)

    def _arrive(self, index: int) -> None:
        rng, world = self.rng, self.world
        # A tool that returns at once, one that takes its time, and one that takes for ever.
        self.clients[f"session-{index}"] = Client(rng.choice([1.0, 1.0, 0.2, 0.03, 0.0]))
        name, start = f"session-{index}", rng.choice([0, 1000, index * 1000])
        prompt = list(range(start, start + rng.choice([1, 15, 16, 17, rng.randint(1, 120)])))
        if rng.random() < 0.3:
            self._plain(name, prompt)
            return
        budget = LENGTH - len(prompt) - 12
        texts: list[str] = []
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            call = rng.choice([CALL, CALL, OTHER])
            said = "w" * rng.randint(0, rng.choice([2, 20])) + call
            most = budget - sum(map(len, texts)) - len(said)
            if most < 2:
                break
            size = most if rng.random() < 0.05 else min(most, rng.randint(1, 60))
            texts += [said, "r" * (size - 1) + "]"]
        left = max(1, budget - sum(map(len, texts)))
        hints = {"tool": PauseHint(rng.choice([0.01, 5.0, 1e6]), rng.choice([None, 50.0]))}
        world.session(name, prompt, *texts, "d" * rng.randint(1, min(12, left)), pauses=hints)

    def _plain(self, name: str, prompt: list[int]) -> None:
        rng, world = self.rng, self.world
        extra = {"tenant": rng.choice(TENANTS)} if rng.random() < 0.3 else {}
        before = [one for one in world.sessions.values() if not one.formats and one.finished]
        if before and rng.random() < 0.5:  # the follow-up of a client that runs its own tools
            last = rng.choice(before[-5:])
            context = [*last.prompt, *last.parts[0], *b"r" * rng.randint(1, 40)]
            if len(context) < LENGTH - 60:
                prompt = context
        most = min(rng.choice([10, 60]), LENGTH - len(prompt) - len(HERMES) - 4)
        text = rng.choice(["z" * rng.randint(1, max(1, most)), HERMES, "zz" + HERMES])
        world.plain(name, prompt, text, **extra)


class Wedged(AssertionError):
    """Work stands still."""


def run(
    seed: int, index: int, sessions: int | None = None, layouts: Sequence[str] = LAYOUTS
) -> Outcome:
    """Make one run, and judge it; never raises but for Ctrl-C."""
    began, made = time.perf_counter(), Run(seed, index, layouts)
    outcome = Outcome(runs=1)
    again = f"python -m benchmarks.campaign simulated --seed {seed} --only {index}"
    if layouts != LAYOUTS:
        again += f" --layouts {','.join(layouts)}"

    def defect(kind: str, seen: str) -> None:
        outcome.defects.append(Defect(kind, seen, again))

    try:
        made.go(sessions or SESSIONS)
    except Wedged as error:
        defect("wedged", str(error))
    except Exception:
        defect("broken", f"{made.world.machine.options}\n{traceback.format_exc()}")
    else:
        _judge_rest(made, defect)
    for session in made.world.sessions.values():
        outcome.ends[_end_of(made, session, defect, whole=not outcome.defects)] += 1
    outcome.sessions = len(made.world.sessions)
    outcome.faults = made.faults.happened
    _count_configuration(made, outcome)
    outcome.seconds = time.perf_counter() - began
    return outcome


def _judge_rest(made: Run, defect: Callable[[str, str], None]) -> None:
    try:
        check_rest(made.world)
    except AssertionError:
        defect("leaked", traceback.format_exc())
        return
    left = remains(made.world.scheduler, made.world.sessions.keys())
    if left:
        defect("leaked", "\n".join(sorted(set(left))[:20]))


def _end_of(made: Run, session: Session, defect: Callable[[str, str], None], whole: bool) -> str:
    """Judge one session by what its client got; returns how it ended."""
    planned = [token for part in session.parts[::2] for token in part]
    aborted = session.request_id in made.world.aborted
    got = session.delivered
    ends_right = got == planned if not aborted else got == planned[: len(got)]
    if not ends_right and (aborted or session.finished):
        defect("differs", f"{session.request_id}: {bytes_of(got)!r} for {bytes_of(planned)!r}")
    if aborted:
        return "aborted"
    if session.finished:
        return "finished"
    if whole:
        defect("lost", session.request_id)
    return "unfinished"


def bytes_of(tokens: list[int]) -> str:
    """Return tokens as text."""
    return "".join("<end>" if token == END else chr(token) for token in tokens)


def _count_configuration(made: Run, outcome: Outcome) -> None:
    options = made.world.machine.options
    if options["host_blocks"] in (1, 3):
        outcome.faults["host buffer full (sessions)"] += outcome.sessions
    outcome.faults[f"layout {options['layout']} (sessions)"] += outcome.sessions
    if made.world.machine.pool < TINY:
        outcome.faults["tiny pool (sessions)"] += outcome.sessions
    preempted = sum(one.get("kind") == "preemption" for one in made.world.records)
    if preempted:
        outcome.faults["preemptions"] += preempted
    outcome.faults["tokens computed again"] += sum(made.world.computed_again.values())
