"""Faults by kind: what a step of the campaign may do to a world, and what it is called."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from vllm.v1.request import RequestStatus

from tests.scheduler.link import random_pace
from tests.scheduler.world import Session

from .worlds import MortalWorld

TENANTS = ("a", "b", "c")
DAY = 86400.0


@dataclass
class Faults:
    """Injects faults into a world; `happened` counts them by kind."""

    world: MortalWorld
    rng: Random
    happened: Counter[str] = field(default_factory=Counter)

    def strike(self) -> None:
        """Do at most a few of all faults, each with its own chance."""
        for chance, fault in FAULTS:
            if self.rng.random() < chance:
                fault(self)

    # -- clients ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """A client gives up, or vanishes, which is the same to an engine."""
        session = self._one(lambda one: not one.finished)
        if session is not None:
            self.happened[f"abort while {self.state_of(session)}"] += 1
            self.world.abort(session)

    def leave(self) -> None:
        """A client closes the input of a session that waits for its tool."""
        session = self._one(lambda one: one.paused and not one.finished)
        if session is not None and session.request_id in self.world.scheduler.requests:
            self.happened["input closed while paused"] += 1
            self.world.goodbye(session)
            self.world.aborted.add(session.request_id)
            session.finished = True

    def state_of(self, session: Session) -> str:
        """Name the state of a session as the engine sees it."""
        scheduler = self.world.scheduler
        request = scheduler.requests.get(session.request_id)
        if request is None:
            return "paused, engine died" if session.paused else "unknown to the engine"
        planner = scheduler.parts.manager.planner
        paused = scheduler.parts.manager.paused_kvs.get(session.request_id)
        if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            return "loading"
        if session.paused:
            held = paused is not None and planner is not None and planner.busy
            return "paused beside copies" if held else "paused"
        if request.status == RequestStatus.RUNNING:
            behind = request.num_computed_tokens < request.num_tokens - 1
            return "prefill" if behind else "decoding"
        if request.status == RequestStatus.PREEMPTED:
            return "preempted"
        return "queued to resume" if paused is not None else "queued"

    # -- the link --------------------------------------------------------------------------------

    def stall(self) -> None:
        """The link stands still, or goes on."""
        self.happened["link stalls"] += 1
        stalled = self.rng.random() < 0.5
        self.world.link.pace = (lambda: -1) if stalled else random_pace(self.rng)

    def fail(self) -> None:
        """Copies fail from now on, or no more."""
        self.happened["copies fail"] += 1
        rate = self.rng.choice([0.0, 0.1, 0.5, 1.0])
        self.world.fails = lambda: self.rng.random() < rate

    # -- the engine ------------------------------------------------------------------------------

    def jump(self) -> None:
        """The engine stands still for a while, which is all that a steady clock can do."""
        self.happened["clock jumps"] += 1
        self.world.now += 10 ** self.rng.uniform(1, 6)

    def reset_day(self) -> None:
        """The time of day is set."""
        self.happened["time of day set"] += 1
        self.world.machine.wall.seconds += self.rng.choice([-400, -1, 1, 400]) * DAY

    def drop(self) -> None:
        """The engine gives up what a paused request holds."""
        held = [name for name, one in self.world.parts.served.paused.items() if one.pause.held]
        if held:
            self.happened["KV dropped"] += 1
            self.world.drop_kv(self.rng.choice(held))

    def reset(self) -> None:
        """Somebody resets the prefix cache."""
        self.happened["prefix cache reset"] += 1
        running, connector = self.rng.random() < 0.3, self.rng.random() < 0.5
        try:
            self.world.scheduler.reset_prefix_cache(running, connector)
        except RuntimeError:  # vLLM's answer beside loads, and beside blocks that steps still read
            if not (self._holding() or self.world.in_flight):
                raise
            self.happened["prefix cache reset refused"] += 1

    def sleep(self) -> None:
        """The engine sleeps, which loses all KV, and wakes.

        vLLM refuses while a request that waits holds blocks into which KV is or was loaded. Then
        the operator asks for the mode `wait`, and that must be granted.
        """
        self.happened["sleep and wake"] += 1
        pace, fails = self.world.link.pace, self.world.fails
        self.world.link.pace, self.world.fails = lambda: 1000, lambda: False
        try:
            self.world.sleep()
        except RuntimeError:
            if not self._holding():
                raise
            self.happened["sleep refused beside a load"] += 1
            self.world.wake_up()
            self.world.sleep_when_drained()
            self.happened["sleep in mode wait"] += 1
        self.world.wake_up()
        self.world.link.pace, self.world.fails = pace, fails

    def _holding(self) -> bool:
        """Return whether a waiting request holds blocks, which vLLM never takes back."""
        return bool(self.world.scheduler.kv_holding_waiting)

    def kill(self) -> None:
        """The engine dies; all sessions but the paused ones are sent again to a new one."""
        self.happened["engine killed"] += 1
        alive = self.world.die()
        self.happened["sessions sent again"] += len(alive)
        for session in self.rng.sample(alive, len(alive)):
            if not session.paused:
                self.world.resend(session)

    def _one(self, fits: Callable[[Session], bool]) -> Session | None:
        fitting = [one for one in self.world.sessions.values() if fits(one)]
        return self.rng.choice(fitting) if fitting else None


FAULTS: tuple[tuple[float, Callable[[Faults], None]], ...] = (
    (0.05, Faults.abort),
    (0.004, Faults.leave),
    (0.03, Faults.stall),
    (0.02, Faults.fail),
    (0.004, Faults.jump),
    (0.01, Faults.reset_day),
    (0.03, Faults.drop),
    (0.004, Faults.reset),
    (0.002, Faults.sleep),
    (0.004, Faults.kill),
)
"""The chance of each fault in a step."""
