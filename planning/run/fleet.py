"""The engines of a run: loaded and evicted until they are those of the present stage."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from caesura.planning.application.application import Model
from caesura.planning.run.dispatch import Dispatcher, Failed, LoadFailed, Notice, ReplicaLost
from caesura.planning.run.host import DRAIN_SECONDS, WATCH_SECONDS, EngineHost, HostError, Replica
from caesura.planning.run.journal import Journal, OutputError

MAX_LOADS = 2
"""How often an engine is started before the run gives up."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What a replica is to be: its model, its devices, and its KV cache on each in bytes."""

    model: Model
    devices: tuple[int, ...]
    kv_bytes: int = 0


@dataclass(slots=True)
class _Held:
    """A replica that was placed, and the tasks that load and evict it."""

    replica: Replica
    seat: Seat
    serves: bool = False
    coming: asyncio.Task[None] | None = None
    leaving: asyncio.Task[None] | None = None


class Fleet:
    """Brings the engines of a host to what a stage needs, while others go on working.

    An engine is loaded once those that hold its devices are evicted. `notify` is told of engines
    that do not start, and of those that end.
    """

    def __init__(
        self,
        host: EngineHost,
        dispatcher: Dispatcher,
        journal: Journal,
        notify: Callable[[Notice], None],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._host = host
        self._dispatcher = dispatcher
        self._journal = journal
        self._notify = notify
        self._drain_seconds = drain_seconds
        self._watch_seconds = watch_seconds
        self._held: dict[str, _Held] = {}
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to watch the engines."""
        self._spawn(self._watch)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """What the replicas are that are loaded or are being loaded."""
        return tuple(held.seat for held in self._staying())

    def model_of(self, replica: str) -> str:
        """Return the model of a replica, or an empty string if it is gone."""
        held = self._held.get(replica)
        return held.replica.model.name if held else ""

    def become(self, seats: Sequence[Seat]) -> None:
        """Evict the replicas that no seat is for, and load those that are missing."""
        missing = list(seats)
        for held in self._staying():
            if held.seat in missing:
                missing.remove(held.seat)
            else:
                held.leaving = self._spawn(partial(self._leave, held))
        for seat in missing:
            self._load(seat)

    async def lose(self, replica: str, reason: str) -> Seat | None:
        """Clear away a replica that was lost; return what it was, or None if it leaves anyway."""
        held = self._held.get(replica)
        if held is None or held.leaving is not None:
            return None
        await self._journal.event("lost", reason=reason, **_named(held.replica))
        held.leaving = self._spawn(partial(self._leave, held, lost=True))
        await asyncio.wait([held.leaving])
        return held.seat

    async def close(self) -> None:
        """Stop loading, and stop all engines."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for held in self._held.values():
            with suppress(OutputError):
                await self._journal.event("evicted", **_named(held.replica))
        self._held.clear()
        with suppress(HostError):
            await self._host.close()

    def _staying(self) -> list[_Held]:
        return [held for held in self._held.values() if held.leaving is None]

    def _load(self, seat: Seat) -> None:
        number = next(self._numbers[seat.model.name])
        replica = Replica(seat.model, number, seat.devices, seat.kv_bytes)
        held = _Held(replica, seat)
        self._held[replica.name] = held
        held.coming = self._spawn(partial(self._come, held))

    async def _come(self, held: _Held) -> None:
        """Load a replica once its devices are free."""
        before = [
            other.leaving
            for other in self._held.values()
            if other.leaving is not None and set(other.seat.devices) & set(held.seat.devices)
        ]
        if before:
            await asyncio.wait(before)
        replica = held.replica
        for attempt in range(1, MAX_LOADS + 1):
            await self._journal.event("loading", attempt=attempt, **_named(replica))
            began = self._journal.seconds
            try:
                await self._host.place(replica)
                endpoint = await self._host.load(replica)
                break
            except HostError as error:
                reason = str(error)
                await self._journal.event("not loaded", reason=reason, **_named(replica))
                with suppress(HostError):
                    await self._host.evict(replica)
        else:
            self._notify(LoadFailed(replica.name, reason))
            return
        seconds = round(self._journal.seconds - began, 3)
        await self._journal.event(
            "loaded", seconds=seconds, kv_tokens=endpoint.kv_tokens, **_named(replica)
        )
        held.serves = True
        self._dispatcher.add(replica.name, replica.model.name, endpoint)

    async def _leave(self, held: _Held, *, lost: bool = False) -> None:
        """Evict a replica; if it still works, let it finish requests for a while."""
        replica = held.replica
        if held.coming is not None and not held.coming.done():
            held.coming.cancel()
            await asyncio.wait([held.coming])
        works = held.serves and not lost
        if works:
            await self._journal.event("draining", **_named(replica))
        await self._dispatcher.drain(replica.name, 0.0 if lost else self._drain_seconds)
        began = self._journal.seconds
        try:
            if works:
                await self._host.drain(replica, self._drain_seconds)
            await self._journal.event("evicting", **_named(replica))
            await self._host.evict(replica)
        except HostError as error:
            await self._journal.event("not evicted", reason=str(error), **_named(replica))
        del self._held[replica.name]
        seconds = round(self._journal.seconds - began, 3)
        await self._journal.event("evicted", seconds=seconds, **_named(replica))

    async def _watch(self) -> None:
        """Tell of engines that have ended."""
        told: set[str] = set()
        while True:
            await asyncio.sleep(self._watch_seconds)
            for held in self._staying():
                name = held.replica.name
                if not held.serves or name in told:
                    continue
                if not await self._host.alive(held.replica):
                    told.add(name)
                    self._notify(ReplicaLost(name, "its engine has ended"))

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # a bug must end the run, not a task in silence
            self._notify(Failed(error))


def _named(replica: Replica) -> dict[str, Any]:
    """Return the fields of events about a replica."""
    return {
        "replica": replica.name,
        "model": replica.model.name,
        "devices": list(replica.devices),
    }
