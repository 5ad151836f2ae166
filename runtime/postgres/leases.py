"""Leases of owners in PostgreSQL: which servers live. As in `caesura.tools.people.owner`."""

from typing import TYPE_CHECKING

from caesura.tools.people.owner import LEASE_SECONDS, is_alive, is_here

if TYPE_CHECKING:
    from caesura.runtime.postgres.database import Connection

TABLE = "CREATE TABLE IF NOT EXISTS leases (owner text PRIMARY KEY, until timestamptz NOT NULL)"
_RENEW = (
    "INSERT INTO leases VALUES (%s, {until})"
    " ON CONFLICT (owner) DO UPDATE SET until = excluded.until"
)


def renew(db: "Connection", owner: str, seconds: float = LEASE_SECONDS) -> None:
    """Let the owner count as alive for so many seconds of the database's clock."""
    until = "clock_timestamp() + make_interval(secs => %s)"
    db.execute(_RENEW.format(until=until), (owner, seconds))


def end(db: "Connection", owner: str) -> None:
    """Let the owner count as gone from now on."""
    db.execute(_RENEW.format(until="'-infinity'"), (owner,))


def is_gone(db: "Connection", owner: str) -> bool:
    """Return whether an owner has ended: one of this machine is looked up, others have leases."""
    row = db.execute(
        "SELECT until = '-infinity', until <= clock_timestamp() FROM leases WHERE owner = %s",
        (owner,),
    ).fetchone()
    has_left, has_run_out = row or (False, True)
    if has_left:
        return True
    return not is_alive(owner) if is_here(owner) else bool(has_run_out)
