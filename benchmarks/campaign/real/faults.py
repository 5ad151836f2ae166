"""Faults of machines, drawn by seed and rate: each kind once first, then by its weight."""

import asyncio
import random
import signal
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import psutil

from .server import ENGINE_TIMEOUT_SECONDS, Server, until

STOPPED_SECONDS = 5.0
DISK_FULL_SECONDS = 8.0
REPLACED_SECONDS = 4.0 * ENGINE_TIMEOUT_SECONDS
MOST_DEATHS, DEATHS_WINDOW_SECONDS = 3, 600.0
"""Five deaths of engines within this time are a crash loop, which ends a server by design."""
AT_WORK = 2.0
"""How long a server works behind the end of a life, by the time that its end has cost."""
ENGINE_KILLED, ENGINE_STOPPED = "engine killed", "engine stopped for 5 s"
ENGINE_HUNG = "engine stopped for good"
SERVER_KILLED, DISK_FULL = "server killed", "disk full for 8 s"
TOOL_SERVER_KILLED, WORKER_KILLED = "tool server killed", "tool worker killed"
KILLING = (ENGINE_KILLED, ENGINE_HUNG, SERVER_KILLED)
"""Kinds that end the life of a server or of an engine."""
WEIGHTS = {
    ENGINE_KILLED: 3,
    ENGINE_STOPPED: 2,
    ENGINE_HUNG: 1,
    SERVER_KILLED: 3,
    DISK_FULL: 2,
    TOOL_SERVER_KILLED: 4,
    WORKER_KILLED: 4,
}


class Faults:
    """Strikes a server at random times."""

    def __init__(self, server: Server, rng: random.Random, kinds: Sequence[str]) -> None:
        """Draw faults of these kinds; they strike at random times by `rng`."""
        self._server, self._rng, self._kinds = server, rng, list(kinds)
        self.happened: Counter[str] = Counter()
        self.calm_from = float("inf")
        """From then on, by the monotonic clock, no server and no engine is killed."""
        self._spaced_until = 0.0
        self._first = rng.sample(self._kinds, len(self._kinds))
        self._deaths: deque[float] = deque()
        self._strikes: dict[str, Callable[[], Coroutine[Any, Any, bool]]] = {
            ENGINE_KILLED: self._kill_engine,
            ENGINE_STOPPED: self._stop_engine,
            ENGINE_HUNG: self._hang_engine,
            SERVER_KILLED: self._kill_server,
            DISK_FULL: self._fill_disk,
            TOOL_SERVER_KILLED: self._kill_tool_server,
            WORKER_KILLED: self._kill_worker,
        }

    async def go(self, every: float, ending: asyncio.Event) -> None:
        """Strike `every` so many seconds on average, until the campaign ends.

        A fault is followed to its end, so that none is under way when this returns.
        """
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), self._rng.uniform(0.5, 1.5) * every)
                return
            kind = self._draw()
            if not kind:
                continue
            began = monotonic()
            if await self._strikes[kind]():
                self.happened[kind] += 1
            await self._server.ready()
            if kind in KILLING:
                now = monotonic()
                self._spaced_until = now + AT_WORK * (now - began)

    def _draw(self) -> str:
        """Return a kind, or an empty text if none of them may strike now."""
        kinds = [one for one in self._kinds if self.may_strike(one)]
        if first := next((one for one in self._first if one in kinds), None):
            self._first.remove(first)
            return first
        spaced = monotonic() < self._spaced_until
        kinds = [one for one in kinds if one not in KILLING or not spaced]
        return self._by_weight(kinds) if kinds else ""

    def may_strike(self, kind: str) -> bool:
        """Return whether a fault of this kind may strike now."""
        if kind not in KILLING:
            return True
        return monotonic() < self.calm_from and (kind == SERVER_KILLED or self._may_die())

    def _by_weight(self, kinds: Sequence[str]) -> str:
        # What found nothing to strike so far is drawn more often.
        weights = [WEIGHTS[kind] * (1 if self.happened[kind] else 3) for kind in kinds]
        return self._rng.choices(kinds, weights)[0]

    def _may_die(self) -> bool:
        while self._deaths and self._deaths[0] < monotonic() - DEATHS_WINDOW_SECONDS:
            self._deaths.popleft()
        return len(self._deaths) < MOST_DEATHS

    async def _kill_engine(self) -> bool:
        engines = self._server.engines()
        for engine in engines:
            engine.kill()
        return await self._dies(engines)

    async def _hang_engine(self) -> bool:
        """Stop the engine and leave it to the server to notice and to kill it."""
        engines = self._server.engines()
        for engine in engines:
            engine.send_signal(signal.SIGSTOP)
        return await self._dies(engines)

    async def _dies(self, engines: list[psutil.Process]) -> bool:
        self._deaths.extend(monotonic() for _ in engines[:1])
        self._server.met.update(engines)
        # /ready still says 200 until the server notices, so the next process must be there first.
        if engines and not await until(lambda: self._replaced(engines), REPLACED_SECONDS):
            raise RuntimeError("the server did not replace its dead or hung engine")
        return bool(engines)

    def _replaced(self, engines: list[psutil.Process]) -> bool:
        new = [one for one in self._server.engines() if one not in engines]
        return bool(new) and not any(map(_lives, engines))

    async def _stop_engine(self) -> bool:
        engines = self._server.engines()
        for engine in engines:
            engine.send_signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_SECONDS)
        for engine in engines:
            engine.send_signal(signal.SIGCONT)
        return bool(engines)

    async def _kill_server(self) -> bool:
        self._deaths.clear()
        await self._server.kill()
        return True

    async def _fill_disk(self) -> bool:
        """Let no file of the server grow or be written, as on a full disk."""
        process, server = self._server.process, self._server
        soft, hard = process.rlimit(psutil.RLIMIT_FSIZE)
        server.disk_full_until = float("inf")
        try:
            process.rlimit(psutil.RLIMIT_FSIZE, (0, hard))
            await asyncio.sleep(DISK_FULL_SECONDS)
        finally:
            process.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))
            server.disk_full_until = monotonic()
        return True

    async def _kill_tool_server(self) -> bool:
        return self._kill_one(self._server.tool_servers())

    async def _kill_worker(self) -> bool:
        return self._kill_one(self._server.workers())

    def _kill_one(self, processes: list[psutil.Process]) -> bool:
        if not processes:
            return False
        with suppress(psutil.NoSuchProcess):
            self._rng.choice(processes).kill()
            return True
        return False


def _lives(process: psutil.Process) -> bool:
    return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
