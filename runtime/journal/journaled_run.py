"""A run with a journal: what drives it again, what it writes, and which calls it may repeat.

No tool that is not safe to repeat runs twice by itself.
"""

from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from caesura.runtime.events import RunEvent
from caesura.runtime.journal.record import MAX_DEATHS, Kind, Recorded, Replayed
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.journal.writer import JournalWriter, NotRecorded
from caesura.scheduler.errors import RepeatedDeaths
from caesura.scheduler.messages import Message
from caesura.tools.errors import Permanent
from caesura.tools.people import NoAnswer, People
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.tool import Tool

NOTICE = (
    "The {ended} ended while this call ran, so nobody knows whether it took effect. "
    "Approve it to run it again."
)
UNKNOWN = (
    "the {ended} ended while this call of {name} ran, so it is unknown whether it took effect; "
    "it was not run again"
)


class CallJournal(Protocol):
    """What calls are written to."""

    def add(self, kind: Kind, value: Any) -> None:
        """Add an entry."""
        ...

    def result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        ...

    async def recorded(self) -> None:
        """Return when all that was added survives a power failure. Raises `NotRecorded`."""
        ...


@dataclass(frozen=True, slots=True)
class Before:
    """What a run did before it is driven again."""

    results: Mapping[str, ToolResult] = field(default_factory=dict)
    """Those that calls had."""
    unknown: Collection[str] = ()
    """The calls that had begun without one."""
    late: Sequence[Sequence[str]] = ()
    """The calls in the background whose results the model was told, by the places where it was."""
    said: Mapping[int, Sequence[Message]] = field(default_factory=dict)
    """What the user said within it, by the turn behind which that was told."""
    turns: int = 0
    """How many turns had begun."""


class JournaledCalls:
    """A `CallLog` that keeps calls in a run's journal; `name` is what ended before."""

    def __init__(
        self,
        journal: CallJournal,
        people: People | None,
        before: Before,
        name: str = "server",
    ) -> None:
        self._journal = journal
        self._people = people
        self._before = before
        self._results = before.results
        self._unknown = frozenset(before.unknown)
        self._name = name
        self._late = deque(before.late)

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """Return the result that the call had before."""
        return self._results.get(call.id)

    def notice(self, call: ToolCall, tool: Tool) -> str:
        """Return what a person must know who decides whether the call runs again."""
        return (
            NOTICE.format(ended=self._name)
            if call.id in self._unknown and not tool.safe_to_repeat
            else ""
        )

    async def settle(
        self, call: ToolCall, tool: Tool, arguments: dict[str, Any], notice: str
    ) -> str | None:
        """Ask a person whether the call runs again; return why it does not, or None."""
        unknown = UNKNOWN.format(ended=self._name, name=tool.name)
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
            await self._journal.recorded()
        except NotRecorded as error:
            raise Permanent(str(error)) from None

    def ended(self, result: ToolResult) -> None:
        """Write down the result of a call."""
        self._journal.result(result)

    def told_before(self) -> Sequence[str] | None:
        """Return the calls in the background whose results the model was told here before."""
        return self._late.popleft() if self._late else None

    def said_before(self, turn: int) -> Sequence[Message] | None:
        """Return what the user said behind a turn before; None: the run had not gone on there."""
        said = self._before.said.get(turn)
        return () if said is None and turn < self._before.turns else said

    def says(self, turn: int, messages: Sequence[Message]) -> None:
        """Write down what the user says behind a turn."""
        self._journal.add("said", [turn, list(messages)])

    def tells(self, calls: Sequence[str]) -> None:
        """Write down the calls in the background whose results the model is told here."""
        self._journal.add("late", list(calls))


def before_of(record: Recorded) -> Before:
    """Return what a journal tells of a run before it is driven again."""
    about = (record.results, record.unknown, record.late, record.said)
    return Before(*about, turns=len(record.turns))


class JournaledRun:
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
        before = Before() if record is None else before_of(record)
        self.calls = JournaledCalls(journal, people, before)
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
        self._replayed = Replayed(steps, journal.streamed, self.given_up)

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
