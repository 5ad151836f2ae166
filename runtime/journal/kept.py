"""A run with a journal: what drives it again, and what it writes."""

from collections.abc import AsyncGenerator
from typing import Any

from caesura.runtime.events import RunEvent
from caesura.runtime.journal.calls import JournaledCalls
from caesura.runtime.journal.record import MAX_DEATHS, Recorded
from caesura.runtime.journal.replay import Replayed
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.journal.writer import JournalWriter
from caesura.scheduler.errors import RepeatedDeaths
from caesura.tools.people import People


class KeptRun:
    """The journal of one run under way, for the parts of the server that the run passes."""

    def __init__(
        self,
        writer: JournalWriter,
        journal: RunJournal,
        people: People | None,
        record: Recorded | None = None,
    ) -> None:
        self._writer = writer
        self.journal = journal
        """Also the log of the run's session."""
        self.calls = JournaledCalls(writer, journal, record, people)
        """The log of the run's calls."""
        self.is_resumed = record is not None
        """Whether the run was begun by an earlier process."""
        self.given_up: RepeatedDeaths | None = None
        """Why the run must not go on behind what its client was told."""
        if record is not None and record.deaths >= MAX_DEATHS:
            self.given_up = RepeatedDeaths(
                f"{record.deaths} servers died under this run, which may be the cause, so it does"
                " not go on"
            )
        steps = () if record is None else record.steps
        self._replayed = Replayed(steps, journal.told, self.given_up)

    @property
    def results_first(self) -> list[str]:
        """The calls whose results were told, in that order."""
        return self._replayed.results

    @property
    def asker(self) -> str:
        """The identity for questions to people of a run whose client has none."""
        return f"run {self.journal.id}"

    def events(
        self, events: AsyncGenerator[RunEvent, None]
    ) -> AsyncGenerator[RunEvent | dict[str, Any], None]:
        """Yield the run's events as they were told before, and keep the new ones.

        The server's own steps come as objects. Raises `BadJournal` if the run does not fit, and
        `RepeatedDeaths` behind the last event that was told if the run is given up.
        """
        return self._replayed.events(events)

    async def is_ours(self) -> bool:
        """Return whether this server may end the run; another one may have taken it over."""
        return await self._writer.is_ours(self.journal)

    def step(self, step: dict[str, Any]) -> None:
        """Keep a step of the server's own."""
        self.journal.add("step", step)
