"""Restarts a dead or hung engine, and says whether the server is alive and takes work.

`RestartPolicy` says when a dead engine is started again, and which deaths are a crash loop: times
are seconds of any clock that never goes backwards, and the caller hands them in. `Runs` knows the
runs under way, and ends those whose tools' results nobody can use. Restarts are counted as metrics
and are entries of a recording. `Readiness` is what probes and balancers ask.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal
from weakref import WeakSet

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError, EngineFailed
from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.records import RestartRecord
from caesura.tools.dispatcher import Dispatcher

FIRST_GUESS_SECONDS = 10.0
"""How long a start of the engine takes, before one was measured."""


class Phase(StrEnum):
    """What the engine does."""

    READY = "ready"
    LOADING = "loading"
    RESTARTING = "restarting"
    FAILED = "failed"
    """It has died, and nobody starts it again."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """Why a server takes no work now."""

    status: str
    reason: str
    retry_seconds: int
    """After so many whole seconds a client may try again."""


class Readiness:
    """The phase of an engine and of its server. One object per server, on its event loop."""

    def __init__(self, clock: Callable[[], float], phase: Phase = Phase.READY) -> None:
        """Create it; `clock` gives seconds and never goes backwards."""
        self._clock = clock
        self._phase = phase
        self._since = clock()
        self._extra_seconds = 0.0
        self.reason = ""
        """Why the engine died the last time, or empty."""
        self.start_seconds = FIRST_GUESS_SECONDS
        """How long a start of the engine takes; the latest that was measured."""
        self.draining = False
        """Whether the server finishes its work and takes no more."""

    @property
    def phase(self) -> Phase:
        """What the engine does."""
        return self._phase

    def enter(self, phase: Phase, reason: str = "", wait_seconds: float = 0.0) -> None:
        """Enter a phase. A start begins after `wait_seconds`; its end measures how long it took."""
        now = self._clock()
        if phase is Phase.READY and self._phase is Phase.RESTARTING:
            self.start_seconds = max(0.0, now - self._since - self._extra_seconds)
        self._phase, self._since, self._extra_seconds = phase, now, wait_seconds
        if reason:
            self.reason = reason

    def engine_started(self) -> None:
        """Measure the first start, whose beginning was the beginning of the phase."""
        self.start_seconds = self._clock() - self._since

    @property
    def dead(self) -> str | None:
        """Why the server can't recover by itself; None while it lives."""
        return (self.reason or "the engine has died") if self._phase is Phase.FAILED else None

    @property
    def not_ready(self) -> NotReady | None:
        """Why the server takes no work now; None if it does."""
        if self._phase is Phase.FAILED:
            return NotReady("failed", self.reason, self._retry_seconds)
        if self.draining:
            return NotReady("draining", "the server is shutting down", 1)
        if self._phase is Phase.RESTARTING:
            return NotReady("restarting", self.reason, self._retry_seconds)
        if self._phase is Phase.LOADING:
            return NotReady("loading", "the engine loads its model", self._retry_seconds)
        return None

    @property
    def after_death(self) -> NotReady:
        """What holds for a client whose request ended with the engine, perhaps just now."""
        just_died = NotReady("restarting", "the engine has died", self._retry_seconds)
        return self.not_ready or just_died

    @property
    def _retry_seconds(self) -> int:
        """The whole seconds until the engine is expected to take work, at least 1."""
        ready = self._phase is Phase.READY
        passed = 0.0 if ready else self._clock() - self._since
        return max(1, math.ceil(self.start_seconds + self._extra_seconds - passed))


log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""How often the engine's health is looked at, which reads one flag of this process."""
SECOND_LOOK_SECONDS = 1.0
"""After a standstill of this process, an answer that came meanwhile gets this long to be read."""
ASKS_PER_TIMEOUT = 4.0
"""How often a silent engine is asked for an answer within its time-out."""
MAX_REASON_CHARACTERS = 200

Kind = Literal["died", "hung", "not started"]
Ask = Callable[[], Awaitable[object]]
"""Returns once the engine's process has answered. Raises `EngineFailed` if it is dead."""
Tell = Callable[[str, str, float], None]
"""Is told what happened (`died`, `hung`, `restarted`, `gave_up`), why, and a number of seconds.

They are how long ago a death was, and how long a restart took.
"""


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Exponential back-off with a ceiling, and the deaths that make a crash loop.

    A death after a quiet window is answered at once, since most deaths are single. A failed start
    counts as a death. Raises `ValueError` for a rule that is not positive.
    """

    first_seconds: float = 1.0
    """The pause before the second restart of a window; it doubles for each further one."""
    ceiling_seconds: float = 30.0
    most_deaths: int = 5
    """So many deaths within the window are a crash loop."""
    window_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("first_seconds", "ceiling_seconds", "most_deaths", "window_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")


class RestartPolicy:
    """Counts an engine's deaths and answers each."""

    def __init__(self, rules: RestartRules) -> None:
        """Create it before the first death."""
        self._rules = rules
        self._deaths: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Count a death at `now`; return the seconds to wait before the restart.

        Returns None in a crash loop: another restart would not help.
        """
        rules = self._rules
        self._deaths.append(now)
        while self._deaths[0] <= now - rules.window_seconds:
            self._deaths.popleft()
        count = len(self._deaths)
        if count >= rules.most_deaths:
            return None
        if count == 1:
            return 0.0
        # The exponent is bounded, since a large one would overflow before the ceiling holds.
        return min(rules.ceiling_seconds, rules.first_seconds * 2.0 ** min(count - 2, 60))

    @property
    def why_given_up(self) -> str:
        """The reason for giving up, for a person: how many deaths within how long."""
        window = self._rules.window_seconds
        return f"it died {len(self._deaths)} times within {window:g} s"


class Runs:
    """The runs of one server, each by the dispatcher of its tools."""

    def __init__(self) -> None:
        # A run's dispatcher lives as long as the run does.
        self._dispatchers: WeakSet[Dispatcher] = WeakSet()
        self._journaled: WeakSet[Dispatcher] = WeakSet()

    def add(self, dispatcher: Dispatcher, *, journaled: bool = False) -> None:
        """Know a run by its dispatcher. A later process goes on with a journaled one."""
        (self._journaled if journaled else self._dispatchers).add(dispatcher)

    async def break_off(self, error: Exception) -> None:
        """Cancel all tools under way and wait for their end; the runs of them raise `error`.

        Runs with a journal go on elsewhere, and are left alone.
        """
        await _broken_off(list(self._dispatchers), error)

    async def break_off_long(
        self, error: Exception, asked: Collection[str], longest_seconds: float
    ) -> None:
        """Break off the runs that wait for people, and those whose tools need longer than this.

        `asked` names the sessions that wait for people.
        """
        await _broken_off(_long(self._dispatchers, asked, longest_seconds), error)

    def long_journaled(self, asked: Collection[str], longest_seconds: float) -> set[str]:
        """Return the sessions of the journaled runs that wait in this way."""
        return {each.scope.session_id for each in _long(self._journaled, asked, longest_seconds)}


def _long(
    dispatchers: Iterable[Dispatcher], asked: Collection[str], longest_seconds: float
) -> list[Dispatcher]:
    return [
        each
        for each in dispatchers
        if each.in_flight
        and (each.scope.session_id in asked or each.expected_seconds_left() > longest_seconds)
    ]


async def _broken_off(dispatchers: Iterable[Dispatcher], error: Exception) -> None:
    await asyncio.gather(*(each.break_off(error) for each in dispatchers))


class RecordedRestarts:
    """Writes entries of what happens to an engine, for each death.

    The first says at once that the engine is down, and the last what came of it.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.time) -> None:
        """Create it; `clock` gives Unix seconds."""
        self._recorder = recorder
        self._clock = clock
        self._died: list[tuple[float, str]] = []

    def tell(self, what: str, why: str, seconds: float) -> None:
        """Take in what happened; see `Tell`."""
        now = self._clock()
        if what in ("died", "hung"):
            self._died.append((now - seconds, why))
            self._write("down", self._died[0][1], len(self._died) - 1)
            return
        starts = len(self._died)
        if what == "restarted":
            self._write("restarted", self._died[0][1], starts, now - self._died[0][0])
        else:
            self._write("given up", why, starts - 1)
        self._died = []

    def _write(self, state: str, why: str, starts: int, seconds: float | None = None) -> None:
        record = RestartRecord(self._died[0][0], why, starts, seconds, state)
        self._recorder.add([record.entry()])


class EngineLost(EngineFailed):
    """The engine has died and is not started again; the message says why."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """How the engine's process is asked, and what belongs to it beside the engine."""

    timeout_seconds: float = 0.0
    """A process that leaves `ask` unanswered for so long is hung; 0: it is not asked."""
    ask: Ask | None = None
    why_dead: Callable[[], str] = lambda: ""
    """May tell more of a death than the engine's error."""
    after_restart: Sequence[Callable[[], Awaitable[None]]] = ()
    """Awaited after a restart, before sessions go on."""


IN_THIS_PROCESS = EngineProcess()
"""An engine that has no process of its own."""
DEFAULT_RULES = RestartRules()


class Supervisor:
    """Supervises one engine on its event loop."""

    def __init__(
        self,
        engine: Engine,
        readiness: Readiness,
        *,
        rules: RestartRules | None = DEFAULT_RULES,
        process: EngineProcess = IN_THIS_PROCESS,
        tell: Tell = lambda what, why, seconds: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create it around a running engine.

        Without `rules` the first death is the last. A hung engine is killed and started again.
        `tell` is told what happened.
        """
        self._engine = engine
        self.readiness = readiness
        """Whether the engine and the server take work."""
        self._policy = None if rules is None else RestartPolicy(rules)
        self._process = process
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self.before_giving_up: Callable[[EngineLost], Awaitable[None]] = _nothing
        """Is awaited before sessions that wait for the engine fail; the server sets it."""
        self.restarts = 0
        """How many times the engine was started again."""
        self.deaths: dict[Kind, int] = {"died": 0, "hung": 0, "not started": 0}
        """How many times the engine was found dead, hung, or did not start."""

    async def run(self) -> None:
        """Supervise until cancelled. Raises `EngineLost` once the engine is given up."""
        # Without restarts too: sessions wait until what must be kept was kept.
        with self._engine.revival.supervising():
            while True:
                kind, reason = await self._death()
                await self._restart(kind, reason)

    async def _death(self) -> tuple[Kind, str]:
        """Wait until the engine is dead or hung; return which, and why."""
        asking = asyncio.ensure_future(self._silence())
        try:
            while not asking.done():
                try:
                    await self._engine.check_health()
                except EngineFailed as error:
                    return "died", self._process.why_dead() or str(error)
                await self._sleep(POLL_SECONDS)
            seconds = self._process.timeout_seconds
            return "hung", f"the engine's process has not answered for {seconds:g} s"
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _silence(self) -> None:
        """Return once the engine's process does not answer in time."""
        ask, timeout = self._process.ask, self._process.timeout_seconds
        if ask is None or not timeout:
            await asyncio.Event().wait()
        assert ask is not None
        while True:
            await self._sleep(timeout / ASKS_PER_TIMEOUT)
            answer = asyncio.ensure_future(ask())
            try:
                for seconds in (timeout, SECOND_LOOK_SECONDS):
                    await asyncio.wait({answer}, timeout=seconds)
                    if answer.done():
                        break
                else:
                    return
            finally:
                answer.cancel()
                # Its error is that of a dead engine, which is found by its health.
                await asyncio.gather(answer, return_exceptions=True)

    async def _restart(self, kind: Kind, reason: str) -> None:
        """Start the engine again, as often as it takes. Raises `EngineLost`."""
        while True:
            self.deaths[kind] += 1
            hung = kind == "hung"
            silent = self._process.timeout_seconds if hung else 0.0
            self._tell("hung" if hung else "died", reason, silent)
            log.error("the engine has failed: %s", reason)
            wait_seconds = None if self._policy is None else self._policy.died(self._clock())
            if wait_seconds is None:
                raise await self._lost(reason)
            self.readiness.enter(Phase.RESTARTING, reason, wait_seconds)
            await self._sleep(wait_seconds)
            began = self._clock()
            try:
                await self._engine.restart()
                for each in self._process.after_restart:
                    await each()
            except CaesuraError as error:
                kind, reason = "not started", str(error)
                continue
            self.restarts += 1
            seconds = self._clock() - began
            self.readiness.enter(Phase.READY)
            self._tell("restarted", reason, seconds)
            log.warning("the engine was started again in %.1f s", seconds)
            return

    async def _lost(self, reason: str) -> EngineLost:
        """Give the engine up; return the error that says why."""
        if self._policy is not None:
            said = f"the engine is in a crash loop, {self._policy.why_given_up}: {reason}"
        else:
            said = f"the engine has died and is not restarted (--no-restart): {reason}"
        error = EngineLost(said)
        self.readiness.enter(Phase.FAILED, said)
        await self.before_giving_up(error)
        self._engine.revival.give_up(error)
        self._tell("gave_up", said, 0.0)
        return error


async def _nothing(error: EngineLost) -> None:
    pass


class EngineMetrics(Collector):
    """Restarts, deaths, and whether the engine is up."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        supervisor, readiness = self._supervisor, self._supervisor.readiness
        up = GaugeMetricFamily("caesura_engine_up", "Whether the engine takes requests.")
        up.add_metric([], float(readiness.phase is Phase.READY))
        yield up
        restarts = CounterMetricFamily(
            "caesura_engine_restarts", "How many times the engine was started again."
        )
        restarts.add_metric([], supervisor.restarts)
        yield restarts
        deaths = CounterMetricFamily(
            "caesura_engine_deaths", "Deaths of the engine, by kind.", labels=["kind"]
        )
        for kind, count in supervisor.deaths.items():
            deaths.add_metric([kind], count)
        yield deaths
        if readiness.reason:
            last = GaugeMetricFamily(
                "caesura_engine_last_death", "Why the engine died the last time.", labels=["reason"]
            )
            last.add_metric([readiness.reason[:MAX_REASON_CHARACTERS]], 1)
            yield last
