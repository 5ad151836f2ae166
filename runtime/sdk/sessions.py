"""`Sessions`: where sessions are kept, in a SQLite file or in PostgreSQL.

A session is the journal of what its runs did. One process has it at a time, by a lease.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from caesura.runtime.errors import UsageError
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.journal.store import (
    JournalStore,
    JournalUnavailable,
    PostgresJournal,
    SqliteJournal,
)
from caesura.runtime.journal.writer import Held, JournalWriter, NotRecorded
from caesura.stores.leases import LEASE_SECONDS, new_owner
from caesura.tools.closing import AsyncClosing

T = TypeVar("T")
LOG = logging.getLogger(__name__)

APPLICATION = 0x43616553
"""What SQLite files of sessions bear, so that another program's file is not taken for one."""
MAX_ID = 200


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session in a store. Times are Unix times."""

    id: str
    created: float
    saved: float
    """When something was last written."""
    in_use: bool
    """Whether a process has it open."""


@dataclass(slots=True)
class _Shared:
    """The writer of one event loop's sessions."""

    writer: JournalWriter
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Sessions(AsyncClosing):
    """Keeps sessions, so that they go on in another process.

        sessions = Sessions("sessions.sqlite")
        async with agent.session(id="user-7", store=sessions) as session:
            print(await session.run("Hello."))

    `where` is a SQLite file, which is made if it is missing, or the address of a PostgreSQL
    database (`postgresql://USER@HOST/DATABASE`, with the extra `postgres`). Threads, event loops
    and processes may share a store, but each session is open in one of them at a time. Raises
    `UsageError` for an address that cannot be used.
    """

    def __init__(self, where: str | Path) -> None:
        if not isinstance(where, str | Path) or not str(where):
            raise UsageError(
                f"sessions are kept in a file or a database, got {where!r}: write"
                ' Sessions("sessions.sqlite") or Sessions("postgresql://...")'
            )
        self._where = where
        self._store: JournalStore
        if "://" in str(where):
            self._store = PostgresJournal(str(where), "session")
        else:
            self._store = SqliteJournal(Path(where), application=APPLICATION)
        self._shared: dict[asyncio.AbstractEventLoop, _Shared] = {}

    async def list(self) -> tuple[SavedSession, ...]:
        """Return the sessions, the one that was saved last first. Raises `UsageError`."""
        found = await self._asked(self._store.runs)
        return tuple(SavedSession(run.id, run.began, run.written, run.is_held) for run in found)

    async def delete(self, session_id: str) -> None:
        """Delete a session, if there is one.

        Raises `UsageError` for a session that is open, here or elsewhere.
        """
        checked_id(session_id)

        def work() -> bool:
            owner = new_owner()
            is_ours = self._store.claim(session_id, owner)
            self._store.delete(owner, [session_id])
            return is_ours or not self._store.load(session_id)

        if not await self._asked(work):
            raise self._in_use(session_id)

    async def aclose(self) -> None:
        """Close the store. Sessions that are open go on, and open it again."""
        await asyncio.to_thread(self._store.close)

    async def take(self, session_id: str, about: dict[str, Any]) -> "Place":
        """Return the place of a session, for this process alone; a new one begins with `about`.

        Raises `UsageError` if the session is in use, or the store cannot be used.
        """
        shared = await self._writer()
        try:
            journal, bodies = await shared.writer.take(session_id, about)
        except BaseException as error:
            await self._leave(shared)
            if isinstance(error, Held):
                raise self._in_use(session_id) from None
            if isinstance(error, JournalUnavailable):
                raise UsageError(f"sessions cannot be read: {error}") from error
            raise
        return Place(self, shared.writer, journal, bodies)

    async def give_back(self, place: "Place") -> None:
        """Write what waits of a session, and let other processes have it."""
        shared = self._shared[asyncio.get_running_loop()]
        try:
            await shared.writer.give_back(place.journal)
        except JournalUnavailable as error:
            LOG.error("the end of the session %s was not saved: %s", place.journal.id, error)
        finally:
            await self._leave(shared)

    async def _writer(self) -> _Shared:
        loop = asyncio.get_running_loop()
        for other in [each for each in self._shared if each.is_closed()]:
            # Its sessions were never closed, and nobody can use them any more.
            left = self._shared.pop(other)
            await asyncio.to_thread(self._store.leave, left.writer.owner)
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = _Shared(JournalWriter(self._store, bounds=None))
        shared.users += 1
        async with shared.lock:
            if not shared.writer.is_started:
                await shared.writer.start()
        return shared

    async def _leave(self, shared: _Shared) -> None:
        shared.users -= 1
        if not shared.users:
            self._shared.pop(asyncio.get_running_loop(), None)
            await shared.writer.aclose()

    async def _asked(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except JournalUnavailable as error:
            raise UsageError(f"sessions cannot be read: {error}") from error

    def _in_use(self, session_id: str) -> UsageError:
        return UsageError(
            f"the session {session_id!r} is open elsewhere: close it there, or wait until that"
            f" process has ended (on another machine up to {LEASE_SECONDS:g} seconds longer)"
        )

    def __repr__(self) -> str:
        where = str(self._where)
        return f"<Sessions in {where if '://' not in where else where.split('://')[0]}>"


@dataclass(slots=True)
class Place:
    """The place of a session in a store, while this process has it."""

    _sessions: Sessions
    _writer: JournalWriter
    journal: RunJournal
    bodies: Sequence[str]
    """The entries that were there; empty for a new session."""

    @property
    def trouble(self) -> str | None:
        """Why the session cannot be saved now; None: it can."""
        return self._writer.trouble

    async def save(self) -> None:
        """Return when all is saved, or cannot be saved now, which the log tells.

        Raises `UsageError` if another process has taken the session.
        """
        try:
            await self._writer.saved(self.journal)
        except NotRecorded:
            if self.journal.taken_over:
                raise UsageError(
                    f"the session {self.journal.id!r} was taken over by another process, since"
                    " this one had not renewed its lease: open it again"
                ) from None

    async def give_back(self) -> None:
        """Let other processes have the session; the log tells what could not be saved."""
        await self._sessions.give_back(self)


def checked_id(session_id: object) -> str:
    """Return the id of a session. Raises `UsageError`."""
    if isinstance(session_id, str) and 0 < len(session_id) <= MAX_ID and session_id.isascii():
        return session_id
    raise UsageError(
        f"the id of a session is a text of 1 to {MAX_ID} ASCII characters, got {session_id!r}"
    )


_NAMED: dict[str, Sessions] = {}
"""The stores that were given by their names."""


def store_of(given: object) -> Sessions | None:
    """Return the store that was given, or named. Raises `UsageError`."""
    if given is None or isinstance(given, Sessions):
        return given
    if isinstance(given, str | Path):
        name = str(given)
        name = name if "://" in name or not name else str(Path(name).absolute())
        if name not in _NAMED:
            _NAMED[name] = Sessions(name)
        return _NAMED[name]
    raise UsageError(
        f"the store of a session is Sessions(...), a file or an address, got {given!r}"
    )
