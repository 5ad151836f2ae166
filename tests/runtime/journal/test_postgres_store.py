"""Journals in PostgreSQL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.journal.store import JournalStore, JournalUnavailable, PostgresJournal
from caesura.stores.leases import new_owner
from tests.kit.postgres import Postgres

from .contract import JournalContract, entries


class TestPostgres(JournalContract):
    @pytest.fixture
    def opened(self, database: str) -> Callable[[], JournalStore]:
        return lambda: PostgresJournal(database)


def test_a_connection_that_was_lost_is_opened_again(postgres: Postgres, database: str) -> None:
    store = PostgresJournal(database)
    store.append("a", entries("r", 0))
    postgres.break_connections(database)
    store.append("a", entries("r", 1))
    assert store.load("r") == ['"0"', '"1"']


def test_a_database_that_is_not_there_is_unavailable_and_its_password_stays_secret() -> None:
    store = PostgresJournal("postgresql://me:secret@127.0.0.1:1/nowhere")
    with pytest.raises(
        JournalUnavailable, match=r"127\.0\.0\.1:1/nowhere cannot be used"
    ) as caught:
        store.load("r")
    assert "secret" not in str(caught.value)


def test_another_address_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="names no PostgreSQL database"):
        PostgresJournal("sqlite:///journal")


def test_tables_of_another_version_stay_as_they_are(database: str) -> None:
    import psycopg

    PostgresJournal(database).append("a", entries("r", 0))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("UPDATE caesura.about SET version = 999")
    with pytest.raises(JournalUnavailable, match="version 999"):
        PostgresJournal(database).load("r")


def test_servers_that_start_together_make_the_tables_once(database: str) -> None:
    stores = [PostgresJournal(database) for _ in range(8)]
    with ThreadPoolExecutor(len(stores)) as threads:
        list(threads.map(lambda store: store.renew("a"), stores))
    assert stores[0].left_behind() == []


def test_servers_that_write_the_same_runs_do_not_wait_for_each_other(database: str) -> None:
    """They queue, but in one order: of two that waited for each other, PostgreSQL ends one."""
    stores = [PostgresJournal(database) for _ in range(4)]
    runs = [f"r{number}" for number in range(20)]

    def write(place: int) -> None:
        order = runs if place % 2 else runs[::-1]
        for number in range(10):
            batch = [entry for run in order for entry in entries(run, number)]
            stores[place].append("a", batch)

    with ThreadPoolExecutor(len(stores)) as threads:
        list(threads.map(write, range(len(stores))))
    assert all(len(stores[0].load(run)) == 10 for run in runs)


def test_a_process_of_this_machine_that_has_died_leaves_its_runs_at_once(database: str) -> None:
    store = PostgresJournal(database)
    alive = new_owner()
    dead = "999999999" + alive[alive.index("-") :]
    for owner, run in ((alive, "r"), (dead, "s")):
        store.renew(owner)
        store.append(owner, entries(run, 0))
    assert store.left_behind() == ["s"]
