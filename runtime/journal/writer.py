"""`JournalWriter`: writes the journals of one server's runs to their store.

A run hands its entries over at once, and never fails by that. They are written in batches, in a
thread, within bounds.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from caesura.runtime.journal.record import (
    MAX_DEATHS,
    BadJournal,
    Recorded,
    recorded,
)
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.journal.store import Bounds, Entry, JournalStore, JournalUnavailable
from caesura.stores.leases import LEASE_SECONDS, RENEW_SECONDS, new_owner

T = TypeVar("T")

LOG = logging.getLogger(__name__)

BATCH_SECONDS = 0.04
"""The shortest time between two writes, unless one is urgent; what comes meanwhile is written
together."""
PATIENCE_SECONDS = 0.25
"""Streams are held back until what they tell is written, but not longer than this."""
RETRY_SECONDS = 5.0
"""The time until a store that failed is tried again."""
RECORD_SECONDS = 5.0
"""How long a call waits until it is recorded."""
SWEEP_SECONDS = 600.0
FRESH_SECONDS = LEASE_SECONDS / 2
"""So long after its renewal a lease is surely valid, also if the machines' clocks differ a bit."""
MAX_WAITING = 100_000
"""The most entries that wait for a store that fails; then the journals are given up."""
DEFAULT_BOUNDS = Bounds()


_NOT_MADE = (
    "the call could not be recorded in the journal, so it was not made; try again later ({why})"
)


class NotRecorded(Exception):
    """A call could not be written down, so it must not be made."""


class Held(Exception):
    """Another user of the store works on a journal."""


class JournalWriter:
    """The journals of one server. All methods but `start` may be called from its event loop only.

    While the store fails, runs go on. Their entries wait, and are written when it works again.

    Without `bounds` the store keeps journals until an operator deletes them, and the writer takes
    over those alone that it is told to `take`.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        bounds: Bounds | None = DEFAULT_BOUNDS,
        owner: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = owner or new_owner()
        self.trouble: str | None = None
        """Why the store cannot be written now; None: it can."""
        self.failures = 0
        """How often the store has failed."""
        self.is_behind = False
        """Whether streams must not wait for the store."""
        self.on_left_behind: Callable[[Sequence[Recorded]], None] | None = None
        """Receives the runs that this server has taken over from others."""
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "caesura-journal")
        self._runs: dict[str, RunJournal] = {}
        self._news: dict[str, RunJournal] = {}
        self._gone: dict[str, RunJournal] = {}
        self._unread: set[str] = set()
        """Runs that were claimed and could not be read yet; for the thread only."""
        self._urgent: list[tuple[RunJournal, bool, asyncio.Future[None]]] = []
        self._impatient: set[asyncio.Future[None]] = set()
        """Those of the urgent ones that end when the store fails."""
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._renew_at = self._sweep_at = self._fresh_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False

    # -- runs ------------------------------------------------------------------------------------

    def begin(self, run_id: str, about: dict[str, Any]) -> RunJournal:
        """Begin the journal of a run. `about` is what is needed to begin the run again."""
        journal = RunJournal(self, run_id, about)
        self._runs[run_id] = self._news[run_id] = journal
        return journal

    def resume(self, record: Recorded) -> RunJournal:
        """Go on with the journal of a run that was taken over."""
        journal = RunJournal(self, record.run_id, record)
        self._runs[record.run_id] = journal
        return journal

    async def take(self, run_id: str, about: dict[str, Any]) -> tuple[RunJournal, list[str]]:
        """Return a journal to write, and the bodies of its entries; begin a new one with `about`.

        Raises `Held` if this writer or another owner has it, and `JournalUnavailable`.
        """
        if run_id in self._runs:
            raise Held(run_id)
        there = await self._do(self._store.load, run_id)
        if not there:
            journal = self.begin(run_id, about)
            try:
                await self.saved(journal)
            except NotRecorded as error:
                self._forget(journal)
                if not journal.taken_over:
                    raise JournalUnavailable(str(error)) from None
        elif await self._do(self._store.claim, run_id, self.owner):
            there = await self._do(self._store.load, run_id)  # its owner may have written more
            journal = self.resume(Recorded(run_id, {}, entries=len(there)))
        if run_id not in self._runs:
            raise Held(run_id)
        return journal, there

    async def give_back(self, run: RunJournal) -> None:
        """Write what waits, and let others take the journal. Raises `JournalUnavailable`."""
        try:
            if run.has_news and not run.dropped:
                await self.saved(run)
        except NotRecorded as error:
            if not run.taken_over:
                raise JournalUnavailable(str(error)) from None
        finally:
            self._forget(run)
        await self._do(self._store.release, self.owner, run.id)

    def _forget(self, run: RunJournal) -> None:
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
        self._news.pop(run.id, None)
        run.leave()

    async def saved(self, run: RunJournal) -> None:
        """Return when all that the run has added survives the end of this process.

        Raises `NotRecorded` if the store cannot be written now. The entries wait for it.
        """
        written = self._written(run, durable=False)
        self._impatient.add(written)
        try:
            await written
        finally:
            self._impatient.discard(written)

    def __len__(self) -> int:
        """Return the number of runs under way that have a journal."""
        return len(self._runs)

    def wake(self, run: RunJournal) -> None:
        """Note that a run has something to write."""
        self._news[run.id] = run
        self._wake.set()

    def hurry(self) -> None:
        """Write what waits without gathering more."""
        self._wake.set()
        self._hurry.set()

    def delete(self, run: RunJournal) -> None:
        """Delete a run's journal when the store can be written."""
        self._runs.pop(run.id, None)
        self._news.pop(run.id, None)
        if run.was_sent:
            self._gone[run.id] = run
            self._wake.set()

    async def record(self, run: RunJournal) -> None:
        """Return when all that the run has added survives a power failure.

        Returns also if the run has no journal that could be taken up. Raises `NotRecorded` if the
        store may hold an older state of the run, and cannot be written.
        """
        if not run.dropped and not (self.trouble and not run.was_sent):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._written(run, durable=True), RECORD_SECONDS)
                return
        if self._bounds is None:
            raise NotRecorded(_NOT_MADE.format(why=self.trouble or "the store does not answer"))
        run.drop()
        if not run.was_sent:
            return
        try:
            await self._do(self._store.delete, self.owner, [run.id])
        except JournalUnavailable as error:
            raise NotRecorded(_NOT_MADE.format(why=error)) from None
        run.was_sent = False

    async def is_ours(self, run: RunJournal) -> bool:
        """Return whether this server still has the run, so that it may end it.

        While the lease is fresh, nobody can have taken it. Otherwise a write finds out.
        """
        is_fresh = self._clock() < self._fresh_until
        if run.has_news and not run.dropped and self.trouble is None and not is_fresh:
            with suppress(TimeoutError, NotRecorded):
                await asyncio.wait_for(self._written(run, durable=False), RECORD_SECONDS)
        return not run.taken_over

    def _written(self, run: RunJournal, *, durable: bool) -> asyncio.Future[None]:
        """Return what is done when the store has all that the run has added, at once."""
        written = asyncio.get_running_loop().create_future()
        self._urgent.append((run, durable, written))
        self.hurry()
        return written

    # -- start and end ---------------------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """Whether it writes."""
        return self._task is not None

    async def start(self) -> list[Recorded]:
        """Begin to write; return the runs that ended processes have left, now ours."""
        found: list[Recorded] = []
        try:
            await self._renew_lease()
            if self._bounds is not None:
                found = await self._do(self._taken_over)
        except JournalUnavailable as error:
            self._failed(error)
        self._task = asyncio.create_task(self._write_on(), name="journal")
        return found

    async def aclose(self, *, died: bool = False) -> None:
        """Write what waits, give up the lease so that others can go on at once, and close.

        `died` says that the engine was lost, for which the runs under way may be the cause. May be
        called twice.
        """
        if self._is_leaving:
            return
        for run in () if died else self._runs.values():
            run.add("left", None)
        self._is_leaving = True
        self.hurry()
        if self._task is not None:
            await self._task
            self._task = None
        for run in list(self._runs.values()):
            run.leave()
        with suppress(JournalUnavailable):
            await self._do(self._store.leave, self.owner)
            await self._do(self._store.close)
        self._thread.shutdown(wait=False)

    # -- writing ---------------------------------------------------------------------------------

    async def _write_on(self) -> None:
        while not self._is_leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._renew_at - self._clock())):
                    await self._wake.wait()
            self._wake.clear()
            await self._round()
            with suppress(TimeoutError):  # more entries gather meanwhile
                async with asyncio.timeout(RETRY_SECONDS if self.trouble else BATCH_SECONDS):
                    await self._hurry.wait()
            self._hurry.clear()
        await self._round()

    async def _round(self) -> None:
        try:
            await self._write()
            if self._clock() >= self._renew_at:
                await self._renew()
        except JournalUnavailable as error:
            self._failed(error)
        except Exception:  # a mistake of ours must not stop the journal
            LOG.exception("the journal could not be written")
            self._release(self._news.values())

    async def _write(self) -> None:
        runs, self._news = self._news, {}
        then = [call for run in runs.values() for call in run.taken_callbacks()]
        urgent, self._urgent = self._urgent, []
        try:
            if self.trouble is not None:
                await self._renew_lease()
            # Runs end and are given up at any time. What is read here is on its way at once, and
            # `was_sent` says so: what was read earlier could be written behind the deletion.
            gone = dict(self._gone)
            entries = [entry for run in runs.values() for entry in run.flushed()]
            if gone or entries:
                durable = any(each for _, each, _ in urgent)
                await self._store_batch(runs, entries, gone, durable, then)
        except BaseException:
            self._urgent = urgent + self._urgent
            self._news = runs | self._news
            _call(then)
            raise
        self._works()
        _call(then)
        for run, _, written in urgent:
            if not written.done() and run.taken_over:
                written.set_exception(NotRecorded("another server goes on with this run"))
            elif not written.done():
                written.set_result(None)

    async def _store_batch(
        self,
        runs: Mapping[str, RunJournal],
        entries: Sequence[Entry],
        gone: Mapping[str, RunJournal],
        durable: bool,
        then: list[Callable[[], None]],
    ) -> None:
        def store() -> frozenset[str]:
            # A new run may have the name of one that has ended, so that one goes first.
            if gone:
                self._store.delete(self.owner, list(gone))
            if not entries:
                return frozenset()
            return self._store.append(self.owner, entries, durable=durable)

        for run in runs.values():
            run.was_sent = True
        refused = await self._patiently(store, then)
        for run_id, run in gone.items():
            if self._gone.get(run_id) is run:
                del self._gone[run_id]
        for run_id, sent in Counter(entry.run_id for entry in entries).items():
            runs[run_id].written(sent)
        for run_id in refused:
            await self._refused(runs[run_id])

    async def _patiently(
        self, store: Callable[[], frozenset[str]], then: list[Callable[[], None]]
    ) -> frozenset[str]:
        """Write a batch; streams that wait for it are let go after a while."""
        writing = self._do(store)
        done, _ = await asyncio.wait([writing], timeout=PATIENCE_SECONDS)
        if not done:
            self.is_behind = True
            _call(then)
        return await writing

    async def _refused(self, run: RunJournal) -> None:
        """Find out why a run is not ours any more: swept, or taken over by another server."""
        left = await self._do(self._store.load, run.id)
        run.leave()
        run.was_sent = False
        self._runs.pop(run.id, None)
        if left:
            run.taken_over = True
            LOG.warning("the run %s goes on in another server: its lease had run out", run.id)
            if run.on_taken_over is not None:
                run.on_taken_over()

    async def _renew_lease(self) -> None:
        now = self._clock()
        await self._do(self._store.renew, self.owner)
        self._fresh_until = now + FRESH_SECONDS
        self._renew_at = self._clock() + RENEW_SECONDS

    async def _renew(self) -> None:
        await self._renew_lease()
        if self._bounds is None:
            return
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + SWEEP_SECONDS
            await self._do(self._store.sweep, self._bounds)
        found = await self._do(self._taken_over)
        if found and self.on_left_behind is not None:
            self.on_left_behind(found)

    def _taken_over(self) -> list[Recorded]:
        """Claim and read the runs that were left behind; runs in the thread.

        If the store fails between, those that were read are returned. The next call takes the
        others, also one that is ours by now and was not read, which no store calls left behind.
        """
        found: list[Recorded] = []
        try:
            for run_id in [*self._unread, *self._store.left_behind()]:
                self._unread.add(run_id)
                is_ours = run_id not in self._runs and self._store.claim(run_id, self.owner)
                if is_ours and (record := self._read(run_id)) is not None:
                    found.append(record)
                self._unread.discard(run_id)
        except JournalUnavailable:
            if not found:
                raise
        return found

    def _read(self, run_id: str) -> Recorded | None:
        """Return what a run's journal tells; delete one that must not be taken up."""
        try:
            record = recorded(run_id, self._store.load(run_id))
            if record.deaths > MAX_DEATHS:  # its replay, up to where it fails, is the cause
                raise BadJournal(f"{record.deaths} servers died under {run_id}")
            return record
        except (BadJournal, LookupError) as error:
            LOG.warning("a run is not taken up again: %s", error)
            self._store.delete(self.owner, [run_id])
            return None

    # -- trouble ---------------------------------------------------------------------------------

    def _failed(self, error: JournalUnavailable) -> None:
        if self.trouble is None:
            LOG.warning(
                "runs go on without a journal, and are lost if this process ends now: %s", error
            )
        self.trouble = str(error)
        self.failures += 1
        self.is_behind = True
        self._renew_at = max(self._renew_at, self._clock() + RETRY_SECONDS)
        for written in self._impatient:
            if not written.done():
                written.set_exception(NotRecorded(str(error)))
        self._wake.set()  # try again after the pause
        self._release(self._runs.values())
        waiting = sum(len(run.flushed()) for run in self._runs.values())
        if self._bounds is not None and waiting > MAX_WAITING:
            for run in list(self._runs.values()):
                run.drop()

    def _works(self) -> None:
        if self.trouble is not None:
            LOG.warning("the journal is written again")
        self.trouble = None
        self.is_behind = False

    def _release(self, runs: Iterable[RunJournal]) -> None:
        for run in list(runs):
            _call(run.taken_callbacks())

    def _do(self, work: Callable[..., T], *values: object) -> asyncio.Future[T]:
        """Do it in the thread, behind all that was asked for before."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *values)


def _call(then: list[Callable[[], None]]) -> None:
    calls, then[:] = list(then), []
    for call in calls:
        call()
