"""Journals of one server's runs: `RunJournal` takes what a run does, `JournalWriter` stores it.

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
    Kind,
    Recorded,
    begun,
    encoded,
    recorded,
)
from caesura.runtime.journal.store import (
    Bounds,
    Entry,
    JournalStore,
    JournalUnavailable,
)
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from caesura.stores.leases import LEASE_SECONDS, RENEW_SECONDS, new_owner
from caesura.tools.result import ToolResult


class RunJournal:
    """Keeps what a run does until the writer takes it. It is also the log of the run's session.

    A run whose journal has a gap cannot be taken up again: it is dropped, and the run goes on
    without one.
    """

    def __init__(
        self, writer: "JournalWriter", run_id: str, begin: dict[str, Any] | Recorded
    ) -> None:
        """Begin the journal of a run, or go on with one that was read."""
        self.id = run_id
        self.taken_over = False
        """Whether another server goes on with the run, so that this one must stop it."""
        self.on_taken_over: Callable[[], None] | None = None
        """Called once when another server has taken the run over."""
        self.was_sent = isinstance(begin, Recorded)
        """Whether the store may hold entries of this run."""
        self.dropped = self.ended = False
        self._writer = writer
        self._turns: Sequence[LoggedTurn] = ()
        self._tokens: list[int] = []
        self._streamed: list[int | str] = []
        self._waiting: list[Entry] = []
        self._then: list[Callable[[], None]] = []
        self._next = 0
        self._has_shown = False
        """Whether the stream has shown something of the last turn."""
        if isinstance(begin, Recorded):
            self._next, self._turns = begin.entries, begin.turns
            self._append(encoded("resumed", begin.deaths))
        else:
            self._append(begun(begin))

    # -- the log of the session ------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The run's id, from which the ids of calls are made."""
        return self.id

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        """The turns to replay."""
        return self._turns

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn of the session; with pictures or sounds, nothing can be gone on from."""
        if turn.has_media:
            self.drop()
        self._has_shown = False
        self.add("turn", turn)

    def sampled(self, tokens: Sequence[int]) -> None:
        """Add tokens to the last turn."""
        if not self._is_over:
            if not self._tokens:
                self._writer.wake(self)
            self._tokens += tokens

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        self.add("outcome", outcome)

    # -- what the run does -----------------------------------------------------------------------

    def add(self, kind: Kind, value: Any) -> None:
        """Add an entry behind all that was added before."""
        if not self._is_over:
            self._flush()
            self._append(encoded(kind, value))

    def streamed(self, step: int | str) -> None:
        """Add a step that the client was sent."""
        if not self._is_over:
            if not self._streamed:
                self._writer.wake(self)
            self._streamed.append(step)

    def result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        self.add("result", result)

    def after_written(self, then: Callable[[], None]) -> None:
        """Call `then` when the store has all that was added, or will not have it for now."""
        if self._is_over or self._writer.is_behind or not self.has_news:
            then()
        else:
            self._then.append(then)
            if not self._has_shown:  # clients wait for the first text
                self._has_shown = True
                self._writer.hurry()

    def finish(self) -> None:
        """Delete the journal: the run is over, and its answer is kept elsewhere."""
        if not self.ended:
            self.ended = True
            self._forget()
            self._writer.delete(self)

    def drop(self) -> None:
        """Give the journal up, since the run could not be repeated from it."""
        if not self._is_over:
            self.dropped = True
            self._forget()
            self._writer.delete(self)

    # -- for the writer --------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there are entries that the store does not have."""
        return bool(self._waiting or self._tokens or self._streamed)

    def flushed(self) -> list[Entry]:
        """Return the entries that the store does not have."""
        self._flush()
        return list(self._waiting)

    def written(self, entries: int) -> None:
        """Forget the first entries, which the store has now."""
        del self._waiting[:entries]

    def taken_callbacks(self) -> list[Callable[[], None]]:
        """Return what is to be called when the entries so far are written, and forget it."""
        then, self._then = self._then, []
        return then

    def leave(self) -> None:
        """Stop writing: another server has the run, or it is gone from the store."""
        self.dropped = True
        self._forget()

    @property
    def goes_on(self) -> bool:
        """Whether another process can go on with the run when this one ends now."""
        return self.taken_over or not self._is_over

    @property
    def _is_over(self) -> bool:
        return self.dropped or self.ended

    def _forget(self) -> None:
        self._waiting, self._tokens, self._streamed = [], [], []
        for then in self.taken_callbacks():
            then()

    def _flush(self) -> None:
        tokens, streamed = self._tokens, self._streamed
        self._tokens, self._streamed = [], []
        if tokens and streamed:
            self._append(encoded("told_tokens", [tokens, streamed]))
        elif tokens:
            self._append(encoded("tokens", tokens))
        elif streamed:
            self._append(encoded("told", streamed))

    def _append(self, body: str) -> None:
        self._waiting.append(Entry(self.id, self._next, body))
        self._next += 1
        self._writer.wake(self)


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


class NotRecorded(Exception):
    """A call could not be written down, so it must not be made."""


class JournalWriter:
    """The journals of one server. All methods but `start` may be called from its event loop only.

    While the store fails, runs go on. Their entries wait, and are written when it works again.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        bounds: Bounds | None = None,
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
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "caesura-journal")
        self._runs: dict[str, RunJournal] = {}
        self._news: dict[str, RunJournal] = {}
        self._gone: dict[str, RunJournal] = {}
        self._unread: set[str] = set()
        """Runs that were claimed and could not be read yet; for the thread only."""
        self._urgent: list[tuple[RunJournal, bool, asyncio.Future[None]]] = []
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
        run.drop()
        if not run.was_sent:
            return
        try:
            await self._do(self._store.delete, self.owner, [run.id])
        except JournalUnavailable as error:
            raise NotRecorded(
                "the call could not be recorded in the journal, so it was not made; "
                f"try again later ({error})"
            ) from None
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

    async def start(self) -> list[Recorded]:
        """Begin to write; return the runs that ended processes have left, now ours."""
        found: list[Recorded] = []
        try:
            await self._renew_lease()
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
                "runs go on without a journal, and are lost if this server ends now: %s", error
            )
        self.trouble = str(error)
        self.failures += 1
        self.is_behind = True
        self._renew_at = max(self._renew_at, self._clock() + RETRY_SECONDS)
        self._wake.set()  # try again after the pause
        self._release(self._runs.values())
        if sum(len(run.flushed()) for run in self._runs.values()) > MAX_WAITING:
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
