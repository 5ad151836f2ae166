"""Calls in the background: the model goes on while they run, and is told their results later.

A result is told between two turns, at the first end of a turn after it has come. Which results are
told where is written down, so that a run which is driven again tells them in the same places.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from caesura.runtime.engine import EngineSession
from caesura.runtime.events import CallGoesOn, ToolReported, ToolReturned
from caesura.runtime.run.fold import acknowledgement, late_message
from caesura.runtime.run.limits import Clock
from caesura.runtime.run.media import Pictures
from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.messages import Message
from caesura.tools.context import CallLog
from caesura.tools.dispatcher import Dispatcher, ToolCall, ToolResult
from caesura.tools.tool import Tool

MAX_REPORTS = 100
"""The most unread progress reports of a run's calls in the background; others are dropped."""


@dataclass(slots=True)
class _Open:
    """A call that runs, or whose result the model has not been told."""

    call: ToolCall
    task: asyncio.Task[ToolResult]
    ends_at: float | None
    """When it is expected to end, by the run's clock; None: not known."""
    cuts: bool = False
    """Whether its result cuts the text that the model writes."""


class BackgroundCalls:
    """The calls of one run for whose results the model does not wait."""

    def __init__(
        self, dispatcher: Dispatcher, clock: Clock, log: CallLog | None, seconds: float | None
    ) -> None:
        """Create it. A turn's end waits for results for `seconds` at most; None: without a bound.

        `log` knows what was told where, if the run is driven again.
        """
        self._dispatcher = dispatcher
        self._clock = clock
        self._log = log
        self._seconds = seconds
        self._open: dict[str, _Open] = {}
        self._ready: list[str] = []
        """The calls whose results have come, in that order."""
        self._reports: list[ToolReported] = []
        self._news = asyncio.Event()
        self._telling: set[asyncio.Task[None]] = set()
        self._forecasts = 0
        self._is_woken = False
        self._cut: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Let the wait end."""
        self._is_woken = True
        self._news.set()

    def cuts_by(self, cut: Callable[[], None]) -> None:
        """Call a function where a result is to cut the turn that decodes."""
        self._cut = cut

    def start(self, call: ToolCall, tool: Tool) -> None:
        """Start a call of a tool."""
        seconds = tool.expected_seconds
        ends_at = None if seconds is None else self._clock() + seconds
        task = self._dispatcher.start(call, on_report=self._report, on_expect=self._expect)
        self._open[call.id] = _Open(call, task, ends_at, tool.cuts)
        task.add_done_callback(lambda _: self._returned(call.id))

    @property
    def are_open(self) -> bool:
        """Whether there are calls whose results the model has not been told."""
        return bool(self._open)

    @property
    def has_results(self) -> bool:
        """Whether a result can be told."""
        return bool(self._ready)

    def _returned(self, call_id: str) -> None:
        if call_id in self._open:
            self._ready.append(call_id)
            self._news.set()
            if self._open[call_id].cuts:
                self._cut()

    def _report(self, call: ToolCall, text: str) -> None:
        if len(self._reports) < MAX_REPORTS:
            self._reports.append(ToolReported(call, text))
            self._news.set()

    def _expect(self, call: ToolCall, seconds: float) -> None:
        if call.id in self._open:
            self._open[call.id].ends_at = self._clock() + seconds
            self._forecasts += 1
            self._news.set()

    # -- waiting ---------------------------------------------------------------------------------

    def told_before(self) -> Sequence[str] | None:
        """Return the calls whose results were told here before, if the run is driven again."""
        return None if self._log is None else self._log.told_before()

    async def news(
        self, session: EngineSession, since: float
    ) -> ToolReported | Literal["result", "expired", "woken"]:
        """Return the next report, or that a result has come, or that the wait has been too long.

        The wait may also be woken. It began at `since`. The session, whose request waits, is told
        for how long.
        """
        forecasts = -1
        while True:
            self._news.clear()
            if self._reports:
                return self._reports.pop(0)
            if self._ready:
                return "result"
            if self._is_woken:
                self._is_woken = False
                return "woken"
            if forecasts != self._forecasts:
                forecasts = self._forecasts
                self._tell(session)
            left = None if self._seconds is None else since + self._seconds - self._clock()
            if left is not None and left <= 0:
                return "expired"
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _tell(self, session: EngineSession) -> None:
        """Tell the session when the first result is expected."""
        ends = [each.ends_at for each in self._open.values()]
        known = [at for at in ends if at is not None]
        if len(known) < len(ends) or (left := min(known) - self._clock()) <= 0:
            return
        # In a task of its own, since the answer must not hold back a result.
        task = asyncio.create_task(session.expect_pause(left))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    # -- telling ---------------------------------------------------------------------------------

    async def due(self, before: Sequence[str] | None) -> list[ToolReturned]:
        """Return the results to be told here, and write them down.

        They are those that have come, or those that were told `before`. Raises `EngineFailed` where
        those are no calls of the run.
        """
        if before is None:
            before = list(self._ready)
            if self._log is not None:
                self._log.tells(before)
        told = []
        for call_id in before:
            found = self._open.get(call_id)
            if found is None:
                raise EngineFailed(f"the run's log tells a result of {call_id}, which is not open")
            result = await found.task
            del self._open[call_id]
            if call_id in self._ready:
                self._ready.remove(call_id)
            told.append(ToolReturned(found.call, result))
        return told

    async def cancel(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        tasks = [*(each.task for each in self._open.values()), *self._telling]
        self._open.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def goes_on(call: ToolCall, *, is_clients: bool) -> CallGoesOn:
    """Return the event of a call that goes on while the model does."""
    return CallGoesOn(call, acknowledgement(call.id, call.name), is_clients)


async def told_late(returned: ToolReturned, pictures: Pictures) -> Message:
    """Return the message that tells the model a late result."""
    call, result = returned.call, returned.result
    content = await pictures.shown(result.content, result.artifacts)
    return late_message(call.id, call.name, content)
