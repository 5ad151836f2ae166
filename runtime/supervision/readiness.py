"""Whether a server is alive, and whether it takes work, as probes and balancers ask."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

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
