"""Watches an engine, and starts it again when it has died or does not answer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError, EngineFailed
from caesura.runtime.supervision.policy import RestartPolicy, RestartRules
from caesura.runtime.supervision.readiness import Phase, Readiness

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""How often the engine's health is looked at, which reads one flag of this process."""
SECOND_LOOK_SECONDS = 1.0
"""After a standstill of this process, an answer that came meanwhile gets this long to be read."""
ASKS_PER_TIMEOUT = 4.0
"""How often a silent engine is asked for an answer within its time-out."""

Kind = Literal["died", "hung", "not started"]
Ask = Callable[[], Awaitable[object]]
"""Returns once the engine's process has answered. Raises `EngineFailed` if it is dead."""
Tell = Callable[[str, str, float], None]
"""Is told what happened (`died`, `hung`, `restarted`, `gave_up`), why, and a number of seconds.

They are how long ago a death was, and how long a restart took.
"""


class EngineLost(EngineFailed):
    """The engine has died and is not started again; the message says why."""


class Supervisor:
    """Supervises one engine on its event loop."""

    def __init__(
        self,
        engine: Engine,
        readiness: Readiness,
        *,
        restarts: bool = True,
        rules: RestartRules | None = None,
        engine_timeout_seconds: float = 0.0,
        ask: Ask | None = None,
        why_dead: Callable[[], str] = lambda: "",
        after_restart: Sequence[Callable[[], Awaitable[None]]] = (),
        tell: Tell = lambda what, why, seconds: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create it around a running engine.

        Without `restarts` the first death is the last. An engine whose process leaves `ask`
        unanswered for `engine_timeout_seconds` is hung, and is killed and started again; 0 asks
        nothing. `why_dead` may tell more of a death than the engine's error. `after_restart` is
        awaited before sessions go on. `tell` is told what happened.
        """
        self._engine = engine
        self.readiness = readiness
        """Whether the engine and the server take work."""
        self._restarts = restarts
        self._policy = RestartPolicy(rules or RestartRules())
        self._timeout = engine_timeout_seconds
        self._ask = ask
        self._why_dead = why_dead
        self._after_restart = after_restart
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
                    return "died", self._why_dead() or str(error)
                await self._sleep(POLL_SECONDS)
            return "hung", f"the engine's process has not answered for {self._timeout:g} s"
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _silence(self) -> None:
        """Return once the engine's process does not answer in time."""
        ask = self._ask
        if ask is None or not self._timeout:
            await asyncio.Event().wait()
        assert ask is not None
        while True:
            await self._sleep(self._timeout / ASKS_PER_TIMEOUT)
            answer = asyncio.ensure_future(ask())
            try:
                for seconds in (self._timeout, SECOND_LOOK_SECONDS):
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
            self._tell("hung" if hung else "died", reason, self._timeout if hung else 0.0)
            log.error("the engine has failed: %s", reason)
            wait_seconds = self._policy.died(self._clock()) if self._restarts else None
            if wait_seconds is None:
                raise await self._lost(reason)
            self.readiness.enter(Phase.RESTARTING, reason, wait_seconds)
            await self._sleep(wait_seconds)
            began = self._clock()
            try:
                await self._engine.restart()
                for each in self._after_restart:
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
        if self._restarts:
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
