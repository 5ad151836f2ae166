"""Worlds of the campaign: an engine's settings by seed, and an engine that can die."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from caesura.intercept.calls.formats import resolve
from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.kv.handling import HANDLINGS
from caesura.scheduler.policy.names import RANKINGS
from caesura.scheduler.vllm.wire import REPLAYED_KEY
from tests.scheduler.layouts import LAYOUTS, room
from tests.scheduler.link import FakeLink, random_pace
from tests.scheduler.whims import Whims
from tests.scheduler.world import Session, SteppedClock, World, make_scheduler

MODES = ((False, 0), (True, 0), (True, 1), (True, 3))
LENGTH = 320
"""Tokens of the longest context; a pool of 20 blocks holds one such request alone."""
TINY = 25
"""Blocks of full attention under which a pool is tiny."""


@dataclass
class WallClock:
    """A time of day that can be set forwards and back."""

    seconds: float = 1.7e9

    def __call__(self) -> float:
        """Return the seconds since 1970."""
        return self.seconds


@dataclass
class Machine:
    """The settings of an engine that survive its death."""

    rng: Random
    asynchronous: bool
    depth: int
    options: dict[str, Any]
    pool: int
    """How many blocks the pool would have with full attention alone."""
    second_runner: bool
    """Whether it is vLLM's second model runner that the fake one stands in for."""
    whimsical: bool
    wall: WallClock = field(default_factory=WallClock)

    @classmethod
    def drawn(cls, rng: Random, layouts: Sequence[str] = LAYOUTS) -> "Machine":
        """Draw the settings of an engine, on one of these layouts of a KV cache."""
        asynchronous, depth = rng.choice(MODES)
        weights = {"a": 3.0} if rng.random() < 0.2 else {}
        options: dict[str, Any] = {
            "layout": rng.choice(layouts),
            "window": rng.choice([16, 40, 64]),
            "max_num_seqs": rng.choice([1, 2, 5, 16, 16]),
            "max_num_batched_tokens": rng.choice([32, 64, 512]),
            "max_model_len": LENGTH,
            "prefix_caching": rng.random() < 0.7,
            "host_blocks": rng.choice([None, 1, 3, 20, 400]),
            "in_step": rng.random() < 0.5,
            "handling": rng.choice(sorted(HANDLINGS)),
            "ranking": rng.choice(sorted(RANKINGS)),
            "admission": rng.choice(["vllm", "vllm", "conservative", "aggressive", "past-future"]),
            "prediction": rng.choice(["history", "hazard"]),
            "pause_deadline": rng.choice([0.0, 100.0, 500.0]),
            "retention": rng.choice([0.0, 30.0, 120.0]),
            "max_copy_failures": rng.choice([1, 3, 1000]),
            "fair": rng.choice(["off", "off", "tenant"]),
            "weights": weights,
            "drafts": rng.choice([0, 0, 0, 0, 2]),
            "formats": resolve(("hermes",), ()),
        }
        if rng.random() < 0.2:
            options["slo"] = "ttft=20,tpot=2"
        pool = rng.choice([21, 22, 24, 34, 60, 200])
        options["blocks"] = room(
            options["layout"], pool, options["prefix_caching"], options["drafts"], depth
        )
        second, whimsical = rng.random() < 0.5, rng.random() < 0.3
        return cls(rng, asynchronous, depth, options, pool, second, whimsical)

    def scheduler(self, clock: SteppedClock) -> Any:
        """Start an engine's scheduler with these settings."""
        scheduler = make_scheduler(
            asynchronous=self.asynchronous, clock=clock, wall=self.wall, **self.options
        )
        scheduler.use_v2_model_runner = self.second_runner
        if self.whimsical:
            scheduler.parts.manager.handling = Whims(self.rng)
        return scheduler


class MortalWorld(World):
    """A world whose engine can die and be started anew."""

    def __init__(self, machine: Machine) -> None:
        """Start the engine."""
        self.machine = machine
        self.clock = SteppedClock()
        self.fails: Callable[[], bool] = lambda: False
        super().__init__(machine.scheduler(self.clock), machine.depth)
        self._connect()

    def _connect(self) -> None:
        self.link.pace = random_pace(self.machine.rng)
        self.link.fails = lambda: self.fails()

    def die(self) -> list[Session]:
        """Lose the engine with all that it held; return the sessions that are to be sent anew."""
        before, now = self.sessions, self.clock.now
        alive = [session for session in before.values() if not session.finished]
        aborted = self.aborted
        self.__dict__.pop("replayed", None)  # a new engine begins new records
        super().__init__(self.machine.scheduler(self.clock), self.machine.depth)
        self.clock.now = now
        self.sessions, self.aborted = before, aborted
        self._connect()
        return alive

    def resend(self, session: Session) -> None:
        """Send a session's tokens to a new engine: its context, and what this turn has said."""
        context = self.context_of(session)
        if not session.formats:
            self.scheduler.add_request(self._request(session.request_id, context, False, None))
            return
        turn = "begun" if session.position else "fresh"
        replayed = len(context) - len(session.prompt) - self._before(session)
        tools = ("calc", *session.pauses)
        plan = WatchPlan(session.formats, tools, (), turn, session.pauses)
        extra = {REPLAYED_KEY: replayed} if replayed else {}
        self.scheduler.add_request(
            self._request(session.request_id, context, True, plan, extra=extra)
        )

    def context_of(self, session: Session) -> list[int]:
        """Return the tokens of a session that its client knows."""
        known = session.parts[: session.position]
        spoken = len(session.delivered) - sum(len(part) for part in known[::2])
        present = session.parts[session.position][:spoken]
        return [*session.prompt, *(token for part in known for token in part), *present]

    def _before(self, session: Session) -> int:
        return sum(len(part) for part in session.parts[: session.position])

    def answer(self, session: Session) -> None:
        """Answer a paused session; to an engine that never saw it, send its whole context."""
        if session.request_id in self.scheduler.requests:
            super().answer(session)
            return
        session.paused = False
        session.position += 2
        self.resend(session)


def heal(link: FakeLink) -> None:
    """Let a link copy everything, and fail no more."""
    link.pace = lambda: 1000
    link.fails = lambda: False
