"""The option `--store` of `caesura serve`."""

from pathlib import Path

import pytest

from caesura.runtime.cli.serve_options import StoreOptions
from caesura.runtime.errors import UsageError
from caesura.runtime.journal.store import Entry, PostgresJournal
from caesura.runtime.server.responses.store import PostgresResponses


def test_responses_and_runs_are_kept_in_the_database(database: str) -> None:
    kept = StoreOptions(shared=database)
    kept.check()
    journal = kept.journal_store()
    assert isinstance(kept.store(), PostgresResponses) and isinstance(journal, PostgresJournal)
    journal.append("a", [Entry("r", 0, "{}")])
    assert PostgresJournal(database).load("r") == ["{}"]
    assert StoreOptions(shared=database, no_journal=True).journal_store() is None


@pytest.mark.parametrize(
    "other", [{"responses": Path("r")}, {"journal": Path("j")}, {"no_responses": True}]
)
def test_a_database_and_files_contradict_each_other(database: str, other: dict[str, bool]) -> None:
    with pytest.raises(UsageError, match="omit --responses"):
        StoreOptions(shared=database, **other).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["mysql://host/db", "postgresql://127.0.0.1:1/nowhere"])
def test_a_database_that_cannot_be_used_is_told_before_the_engine_starts(address: str) -> None:
    with pytest.raises(UsageError, match=r"postgresql://|--store"):
        StoreOptions(shared=address).check()
