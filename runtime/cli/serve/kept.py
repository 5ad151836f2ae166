"""Options of `caesura serve` for what outlives a restart: responses, and runs under way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.errors import UsageError, usage_errors
from caesura.runtime.journal.store import JournalStore, PostgresJournal, SqliteJournal
from caesura.runtime.server.responses.store import PostgresResponses, ResponseStore, SqliteResponses
from caesura.scheduler.paths import journal_path, responses_path
from caesura.stores.postgres import Database, Misconfigured, Unavailable, shown


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept in files, or in a database."""

    responses: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="The file of stored responses and conversations. "
            "Default: in the user's state directory.",
        ),
    ] = None
    no_responses: Annotated[
        bool,
        typer.Option(
            "--no-responses",
            help="Keep stored responses and conversations in memory only, until the server ends.",
        ),
    ] = False
    journal: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="The file of the runs under way, which go on from it after a restart. "
            "Default: in the user's state directory.",
        ),
    ] = None
    no_journal: Annotated[
        bool,
        typer.Option(
            "--no-journal",
            help="Write no runs down: those under way are lost when the server ends or dies.",
        ),
    ] = False

    shared: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="postgresql://USER@HOST/DATABASE",
            envvar="CAESURA_STORE",
            show_envvar=True,
            help="Keep responses and runs in PostgreSQL instead, which several servers may share. "
            "`ps` shows it: better use the environment.",
        ),
    ] = None

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other, and for an unusable database.

        Call it before an engine starts.
        """
        if self.shared is None:
            return
        if self.responses or self.no_responses or self.journal:
            raise UsageError(
                f"--store keeps responses and runs in {shown(self.shared)}: omit --responses,"
                " --no-responses and --journal"
            )
        try:
            with usage_errors(Misconfigured):
                Database(self.shared, ()).check()
        except Unavailable as error:
            raise UsageError(f"{error}; correct --store or CAESURA_STORE") from error

    def store(self) -> ResponseStore:
        """Return the store of responses and conversations."""
        if self.shared is not None:
            return PostgresResponses(self.shared)
        return SqliteResponses(None if self.no_responses else self.responses or responses_path())

    def journal_store(self) -> JournalStore | None:
        """Return the store of journals, or None if no runs are to be written down.

        Runs whose responses are kept in memory only are not written down either.
        """
        if self.shared is not None and not self.no_journal:
            return PostgresJournal(self.shared)
        if self.no_journal or (self.no_responses and self.journal is None):
            return None
        return SqliteJournal(self.journal or journal_path())
