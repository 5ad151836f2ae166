"""Options of `caesura serve` for what outlives a restart: responses, and runs under way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.journal.sqlite_store import SqliteJournal
from caesura.runtime.journal.store import JournalStore
from caesura.runtime.server.responses.store import Store
from caesura.scheduler.paths import journal_path, responses_path


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept on the disk."""

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

    def store(self) -> Store:
        """Return the store of responses and conversations."""
        return Store(None if self.no_responses else self.responses or responses_path())

    def journal_store(self) -> JournalStore | None:
        """Return the store of journals, or None if no runs are to be written down.

        Runs whose responses are kept in memory only are not written down either.
        """
        if self.no_journal or (self.no_responses and self.journal is None):
            return None
        return SqliteJournal(self.journal or journal_path())
