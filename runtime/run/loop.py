"""The loop of one run: model turns and tool calls until the answer is complete.

The loop starts a tool as soon as the model has completed its call, while decoding continues. It
resumes the paused turn when all its calls have results.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    ModelChanged,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import EngineFailed
from caesura.runtime.events import (
    RunEnded,
    RunEvent,
    Steered,
    ToolReported,
    ToolReturned,
    Usage,
    run_reason,
)
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.fold import NAMELESS, UsageCount, acknowledgement, tool_message
from caesura.runtime.run.late import BackgroundCalls, goes_on
from caesura.runtime.run.late import told_late as late_told
from caesura.runtime.run.limits import Budget, Clock
from caesura.runtime.run.media import Pictures
from caesura.runtime.run.steering import Steering
from caesura.scheduler.messages import Message, Part, Sampling
from caesura.tools.dispatcher import Dispatcher, ToolCall, ToolResult, malformed

_FORECAST: Literal["forecast"] = "forecast"
_Told = asyncio.Future[ToolResult] | ToolReported | Literal["forecast"]
MAX_REPORTS = 100
"""The most unread events of a turn's tools; further progress reports are dropped."""


def run(
    session: EngineSession,
    messages: Sequence[Message],
    dispatcher: Dispatcher,
    context: RunContext,
    clock: Clock = time.monotonic,
) -> AsyncGenerator[RunEvent, None]:
    """Send `messages` and yield the run's events; `RunEnded` comes last.

    `dispatcher` runs the calls of the context's registry. It answers a call of an unknown tool with
    an error, which the model sees. The client runs the calls of the context's `client_tools`: a
    turn with such a call ends the run with reason `calls`, and drops its own calls. The model goes
    on behind calls of `client_background` alone. If `sampling` requires a call, then only until
    the model has made one.

    The caller closes the session. The session can take another run only after a run that ended
    with `stop` or `length`. To leave early, close the iterator (`contextlib.aclosing`), which
    cancels the tools under way.

    Raises `LimitReached` after cancelling the tools, and the engine's errors.
    """
    return _Run(session, dispatcher, context, clock).events(messages)


def traced(
    session: EngineSession,
    messages: Sequence[Message],
    dispatcher: Dispatcher,
    context: RunContext,
) -> AsyncGenerator[RunEvent, None]:
    """Return the events of `run`, with spans if the context has a trace."""
    if context.trace is None:
        return run(session, messages, dispatcher, context)
    return context.trace.events(run(context.trace.session(session), messages, dispatcher, context))


def _after_a_call(sampling: Sampling | None) -> Sampling | None:
    """Return the settings without the requirement of a call, which has been met."""
    if sampling is None or sampling.calls is None:
        return sampling
    return replace(sampling, calls=replace(sampling.calls, required=False))


class _Run:
    """A run under way."""

    def __init__(
        self, session: EngineSession, dispatcher: Dispatcher, context: RunContext, clock: Clock
    ) -> None:
        self._session = session
        self._context = context
        self._clock = clock
        self._budget = context.budget or Budget(context.limits, clock)
        self._usage = UsageCount()
        self._order = deque(context.results_first)
        self._dispatcher = dispatcher
        self._log = log = context.tools.log
        self._late = BackgroundCalls(dispatcher, clock, log, context.limits.max_wait_seconds)
        self._steering = context.steering or Steering()
        self._late.cuts_by(self._steering.nudge)
        self._turns = 0

    async def events(self, feed: Sequence[Message]) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of all turns; see `run`."""
        budget, late, pictures = self._budget, self._late, self._context.pictures
        sampling, steering = self._context.sampling, self._steering
        lead = ""  # text before in-line calls, whose sentence the next turn continues
        steering.wakes(late.wake)
        try:
            while True:
                turn = _Turn(self._dispatcher, self._context, self._clock, budget, late)
                try:
                    decoded = self._decoded(turn, feed, budget.begin_turn(sampling))
                    async with aclosing(decoded) as events:
                        async for event in events:
                            yield event
                    ended = turn.ended(lead, self._usage.total)
                    said = self._said(turn)
                    if ended is not None and not self._goes_on(ended, said):
                        yield ended
                        return
                    while turn.waiting:
                        told = await budget.wait(turn.next_of_tools(self._session, self._order))
                        yield self._counted(told)
                    told_late: list[ToolReturned] = []
                    if (late.are_open or turn.leaves_calls) and not turn.inline:
                        waits = ended is not None and not said
                        between = self._between(turn, told_late, waits=waits)
                        async with aclosing(between) as telling:
                            async for each in telling:
                                yield each
                    said = said or self._said(turn)
                    if ended is not None and not (told_late or said):  # nobody waits any longer
                        yield ended
                        return
                    for message in said:
                        yield Steered(message)
                    sampling = _after_a_call(sampling)
                    lead = lead + turn.text if turn.inline else ""
                    feed = [] if ended is not None else await turn.answers(pictures)
                    feed += [await late_told(each, pictures) for each in told_late]
                    feed += said
                finally:
                    await turn.cancel()
        finally:
            steering.over()
            await late.cancel()

    def _said(self, turn: "_Turn") -> list[Message]:
        """Return what the user says behind a turn, which is told next, and write it down.

        Within a sentence nothing is told, and behind a turn that the client goes on with.
        """
        if turn.inline or turn.ends_run:
            return []
        log = self._log
        before = None if log is None else log.said_before(self._turns)
        if before is not None:
            return list(before)
        said = self._steering.take()
        if said and log is not None:
            log.says(self._turns, said)
        return said

    def _goes_on(self, ended: RunEnded, said: Sequence[Message]) -> bool:
        """Return whether the run goes on behind a turn with which it might end."""
        if self._steering.stops:
            return False
        # A late result may have cut the turn.
        waits = ended.reason in ("stop", "interrupted") and self._late.are_open
        return bool(said) or waits

    async def _decoded(
        self, turn: "_Turn", feed: Sequence[Message], sampling: Sampling | None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn; its request waits at its end while calls are open."""
        if self._late.are_open:
            self._session.hold()
        self._turns += 1
        try:
            async with aclosing(self._session.turn(feed, sampling)) as events:
                begun = False
                while (event := await self._budget.wait(anext(events, None))) is not None:
                    if not begun:  # a turn that has not begun cannot be cut
                        begun = True
                        self._steering.decodes(self._session)
                    turn.take(event)
                    self._usage.take(event)
                    if self._context.observer is not None and turn.end is event:
                        self._context.observer.turn_ended(turn.end)
                    yield event
        finally:
            await self._steering.rests()
        self._budget.end_turn(turn.ending)

    async def _between(
        self, turn: "_Turn", told: list[ToolReturned], *, waits: bool
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield what calls in the background have to tell between two turns.

        The results that are told in late messages are added to `told`. With `waits` it waits for
        one, up to the bound of the run's limits.
        """
        due: list[ToolReturned] = []
        if self._late.are_open:
            before, since = self._late.told_before(), self._clock()
            while waits and before is None and not self._late.has_results:
                news = await self._budget.wait(self._late.news(self._session, since))
                steers = self._steering.is_pending or self._steering.stops
                if news == "expired" or (news == "woken" and steers):
                    return
                if isinstance(news, ToolReported):
                    yield news
            due = await self._budget.wait(self._late.due(before))
        for returned in due:
            if turn.answer(returned):
                yield self._counted(returned)
            else:
                told.append(returned)
        for call in turn.left_open():
            yield goes_on(call, is_clients=turn.is_clients(call.name))
        for returned in told:
            yield self._counted(returned)

    def _counted(self, told: RunEvent) -> RunEvent:
        """Return an event of a tool, which the observer is told of, and the order of results."""
        if isinstance(told, ToolReturned):
            if self._order and self._order[0] == told.call.id:
                self._order.popleft()
            if self._context.observer is not None:
                self._context.observer.tool_returned(told)
        return told


class _Turn:
    """One turn of a run: its text, its calls in order, and their running tools."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        context: RunContext,
        clock: Clock,
        budget: Budget,
        late: BackgroundCalls,
    ) -> None:
        self._dispatcher = dispatcher
        self._budget = budget
        self._late = late
        self._registry = context.registry
        self._own_tools = context.registry.names
        self._client_tools = context.client_tools
        self._client_background = context.client_background
        self._pausing = context.pausing
        self._text: list[str] = []
        self._malformed_text: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._clients: list[ToolCall] = []
        self._tasks: list[asyncio.Task[ToolResult]] = []
        self._returned: asyncio.Queue[_Told] = asyncio.Queue()
        self._forecasts = PauseForecasts(clock)
        self._results: dict[str, ToolResult] = {}
        self._background: set[str] = set()
        """The calls for whose results the model does not wait."""
        self._early: dict[str, ToolResult] = {}
        """Results that came before those that must come first."""
        self.end: TurnEnded | None = None
        self._telling: list[asyncio.Task[None]] = []
        self.inline = False
        self.leaves_calls = False
        """Whether it has calls that the client runs while the model goes on."""

    def take(self, event: Event) -> None:
        """Add one engine event; start the tool of a call while the model still decodes."""
        match event:
            case TextDelta(text=text):
                self._text.append(text)
            case CallFinished():
                self._take_call(event)
            case CallMalformed():
                self._take_malformed(event)
            case ModelChanged():
                self._text.clear()
                self._budget.held_tokens = 0  # the next prompt is the whole history
            case TurnEnded():
                self.end = event
            case _:
                pass

    def _take_call(self, event: CallFinished) -> None:
        call = ToolCall(event.call_id, event.name, event.arguments)
        self.inline = event.inline
        if not self._pausing or self.is_clients(call.name):
            if self._pausing and call.name in self._client_background and not event.inline:
                self._calls[call.id] = call
                self._background.add(call.id)
                self.leaves_calls = True
            else:
                self._clients.append(call)
            return
        self._budget.begin_call()
        self._calls[call.id] = call
        tool = self._registry.get(call.name)
        if tool is not None and tool.background and not event.inline:
            self._background.add(call.id)
            self._late.start(call, tool)
            return
        task = self._dispatcher.start(call, on_report=self._report, on_expect=self._expect)
        task.add_done_callback(self._returned.put_nowait)
        self._tasks.append(task)

    def _take_malformed(self, event: CallMalformed) -> None:
        name = event.name or NAMELESS
        self.inline = event.inline
        self._malformed_text.append(event.text)
        self._calls[event.call_id] = ToolCall(event.call_id, name, event.text)
        answer: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        answer.set_result(malformed(event.call_id, name, event.text, event.reason))
        self._returned.put_nowait(answer)

    def is_clients(self, name: str) -> bool:
        """Return whether the client runs the calls of a tool."""
        return name in self._client_tools and name not in self._own_tools

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def ending(self) -> TurnEnded:
        if self.end is None:
            raise EngineFailed("the engine ended a turn without its last event, TurnEnded")
        return self.end

    def ended(self, lead: str, usage: Usage) -> RunEnded | None:
        """Return the run's end, or None if the run continues with the tools' results."""
        reason = self.ending.reason
        text = lead + self.text
        if reason != "call":
            return RunEnded(run_reason(reason), text, usage)
        if self._clients:
            return RunEnded("calls", text, usage, tuple(self._clients))
        if not self._pausing:
            # The server runs no tools here, so the model's text of a malformed call is shown.
            return RunEnded("stop", text + "".join(self._malformed_text), usage)
        return None

    @property
    def ends_run(self) -> bool:
        """Whether the run ends with the turn: its client goes on, or a limit was reached."""
        return bool(self._clients) or self.ending.reason == "length"

    @property
    def waiting(self) -> bool:
        """Whether a call of this turn still has no result for which the model waits."""
        return not self._results.keys() | self._background >= self._calls.keys()

    def _report(self, call: ToolCall, text: str) -> None:
        if self._returned.qsize() < MAX_REPORTS:
            self._returned.put_nowait(ToolReported(call, text))

    def _expect(self, call: ToolCall, seconds: float) -> None:
        self._forecasts.take(call.id, seconds)
        if self._returned.qsize() < MAX_REPORTS:
            self._returned.put_nowait(_FORECAST)

    async def next_of_tools(
        self, session: EngineSession, order: deque[str]
    ) -> ToolReturned | ToolReported:
        """Wait for the next result or progress report of a tool, and return it.

        The results of the calls in `order` come first. Meanwhile the session, which is paused, is
        told how long the calls are expected to last.
        """
        if order and order[0] not in self._calls:
            order.clear()  # they are of another run, which whoever gave them finds out
        while True:
            if (early := self._early.pop(order[0] if order else "", None)) is not None:
                return self._return(early, order)
            if not order and self._early:
                return self._return(self._early.pop(next(iter(self._early))), order)
            told = await self._returned.get()
            if isinstance(told, ToolReported):
                return told
            if isinstance(told, asyncio.Future):
                result = told.result()
                if not order or order[0] == result.call_id:
                    return self._return(result, order)
                self._early[result.call_id] = result
                continue
            waited = self._calls.keys() - self._results.keys() - self._background
            left = self._forecasts.left_seconds(waited)
            if left is not None:
                # In a task of its own, since the answer must not hold back a tool's result.
                self._telling.append(asyncio.create_task(session.expect_pause(left)))

    def answer(self, returned: ToolReturned) -> bool:
        """Take the result of a call in the background; return whether it is one of this turn's."""
        found = returned.call.id in self._background
        if found:
            self._results[returned.call.id] = returned.result
        return found

    def left_open(self) -> list[ToolCall]:
        """Return the calls of this turn that go on while the model does."""
        return [self._calls[each] for each in self._calls if each in self._open]

    @property
    def _open(self) -> set[str]:
        return self._background - self._results.keys()

    def _return(self, result: ToolResult, order: deque[str]) -> ToolReturned:
        self._results[result.call_id] = result
        return ToolReturned(self._calls[result.call_id], result)

    async def answers(self, pictures: Pictures) -> list[Message]:
        """Return the results as messages for the model, in call order."""
        made = []
        for call in self._calls.values():
            content: str | Sequence[Part]
            if (result := self._results.get(call.id)) is None:
                content = acknowledgement(call.id, call.name)
            elif self.inline:  # a sentence goes on behind its result, which is text
                content = result.content
            else:
                content = await pictures.shown(result.content, result.artifacts)
            made.append(tool_message(call.id, call.name, content))
        return made

    async def cancel(self) -> None:
        """Cancel the running tools and wait until they have ended."""
        tasks = [*self._tasks, *self._telling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class PauseForecasts:
    """The forecasts that the calls of one turn have given; the turn waits for the last of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def take(self, call_id: str, seconds: float) -> None:
        """Take a forecast that a call lasts `seconds` more; it replaces an earlier one."""
        self._ends[call_id] = self._clock() + seconds

    def left_seconds(self, running: Collection[str]) -> float | None:
        """Return the seconds until the last of the `running` calls is expected to end.

        Returns None if a call has no forecast, or if all forecasts have passed.
        """
        if not running or any(call_id not in self._ends for call_id in running):
            return None
        left = max(self._ends[call_id] for call_id in running) - self._clock()
        return left if left > 0 else None
