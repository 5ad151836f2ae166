"""The calls of a run with a journal: no tool that is not safe to repeat runs twice by itself."""

from collections.abc import Mapping
from typing import Any

from caesura.runtime.journal.record import Recorded
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.journal.writer import JournalWriter, NotRecorded
from caesura.tools.errors import Permanent
from caesura.tools.people import NoAnswer, People
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.tool import Tool

NOTICE = (
    "The server ended while this call ran, so nobody knows whether it took effect. "
    "Approve it to run it again."
)
UNKNOWN = (
    "the server ended while this call of {name} ran, so it is unknown whether it took effect; "
    "it was not run again"
)


class JournaledCalls:
    """A `CallLog` that keeps calls in a run's journal."""

    def __init__(
        self,
        writer: JournalWriter,
        journal: RunJournal,
        record: Recorded | None,
        people: People | None,
    ) -> None:
        self._writer = writer
        self._journal = journal
        self._people = people
        self._results: Mapping[str, ToolResult] = {} if record is None else record.results
        self._unknown = frozenset(() if record is None else record.unknown)

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """Return the result that the call had before."""
        return self._results.get(call.id)

    def notice(self, call: ToolCall, tool: Tool) -> str:
        """Return what a person must know who decides whether the call runs again."""
        return NOTICE if call.id in self._unknown and not tool.safe_to_repeat else ""

    async def settle(
        self, call: ToolCall, tool: Tool, arguments: dict[str, Any], notice: str
    ) -> str | None:
        """Ask a person whether the call runs again; return why it does not, or None."""
        unknown = UNKNOWN.format(name=tool.name)
        if tool.when_unknown == "fail" or self._people is None:
            return unknown
        if tool.approval:
            return None  # its own approval shows the notice
        seconds = self._people.settings.approval_deadline_seconds
        try:
            await self._people.approve(
                tool.name, arguments, deadline_seconds=seconds, notice=notice
            )
        except NoAnswer as answer:
            return f"{unknown} ({answer})"
        return None

    async def starts(self, call: ToolCall, tool: Tool) -> None:
        """Write down that the tool runs now; for one not safe to repeat, before it does."""
        if tool.waits_for_person and tool.safe_to_repeat:
            return  # a run that waits for a person does nothing of which its server could die
        self._journal.add("call", call.id)
        if tool.safe_to_repeat:
            return
        try:
            await self._writer.record(self._journal)
        except NotRecorded as error:
            raise Permanent(str(error)) from None

    def ended(self, result: ToolResult) -> None:
        """Write down the result of a call."""
        self._journal.result(result)
