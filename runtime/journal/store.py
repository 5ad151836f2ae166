"""The port to where journals are kept: `JournalStore`.

Each run has one owner, the server that works on it. An owner holds a lease, which it renews. When
the lease has run out, another owner may claim the runs. So several servers can share one store,
and each run goes on in one of them at a time.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

MB = 2**20
LEASE_SECONDS = 30.0
"""How long an owner counts as alive after it has renewed its lease."""


class JournalUnavailable(Exception):
    """The store cannot be read or written now: a full disk, a lock, a lost connection.

    The message is one sentence. The same call may succeed later.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's journal."""

    run: str
    """The run's id, at most 200 characters of ASCII."""
    number: int
    """The entry's place in the run, from 0 without gaps. The entry 0 begins the run."""
    body: str
    """JSON text. A store keeps it as it is and never reads it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a store keeps. The runs that began first are deleted first."""

    max_runs: int = 10_000
    max_bytes: int = 512 * MB
    """Bytes of the entries' text."""
    max_age_seconds: float = 7 * 24 * 3600.0
    """Seconds since a run's last entry."""

    def surplus(self, runs: Sequence[tuple[str, int, bool]]) -> list[str]:
        """Return the runs that must go; `runs` tells of each its bytes, and whether it is too old.

        Those that began first stand in front.
        """
        count, size = len(runs), sum(length for _, length, _ in runs)
        gone = []
        for run, length, is_old in runs:
            if is_old or count > self.max_runs or size > self.max_bytes:
                gone.append(run)
                count -= 1
                size -= length
        return gone


class JournalStore(Protocol):
    """Journals of runs, shared by owners. All methods block; any thread may call them.

    An owner is a name that no other process uses (`caesura.tools.people.owner.new_owner`). Times
    are the store's own, so that servers' clocks need not agree. Each method is atomic: after an
    error all of it was done or nothing, and doing it again is safe. The methods raise
    `JournalUnavailable`.
    """

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold (any more).

        Nothing is added to those: they were taken over, deleted or swept. An entry with number 0
        makes its run and gives it to `owner`, unless a run of that id exists. An entry that is
        there already stays as it is, so a batch can be sent again. With `durable`, what was added
        survives a power failure; otherwise it need only survive the end of the process.
        """
        ...

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        ...

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        ...

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, those that began first in front."""
        ...

    def claim(self, run: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it now.

        Of several that claim one run, one gets it. An owner that holds the run gets True.
        """
        ...

    def load(self, run: str) -> list[str]:
        """Return the bodies of a run's entries in order; empty for an unknown run.

        Entries behind a missing number are empty texts, which cannot be read: the missing one may
        be that of a call, which would be made again.
        """
        ...

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""
        ...

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases that ran out long ago; return the runs.

        A run is deleted in any state, so bounds must leave room for those under way.
        """
        ...

    def close(self) -> None:
        """Give back connections; the next call opens them again."""
        ...
