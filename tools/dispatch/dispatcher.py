"""Runs a session's tool calls in parallel, within limits, and returns failures as data."""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from caesura.tools.artifacts import note_owner
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import CallContext, Scope, enter, leave
from caesura.tools.dispatch.attempt import Flight, Outcome, Runner, cancel_requests, log_bug
from caesura.tools.dispatch.bounded import GRACE_SECONDS
from caesura.tools.dispatch.call_log import CallLog
from caesura.tools.dispatch.call_observer import OnCall
from caesura.tools.dispatch.truncate import DEFAULT_MAX_TOKENS, fit_tokens
from caesura.tools.registry import Registry
from caesura.tools.result import (
    MAX_RESULT_CHARACTERS,
    ErrorKind,
    ToolCall,
    ToolResult,
    error_text,
    fit,
    malformed,
)
from caesura.tools.schema.arguments import ArgumentsError
from caesura.tools.tool import Tool

__all__ = ["Dispatcher", "ErrorKind", "ToolCall", "ToolResult", "malformed"]

LOG = logging.getLogger(__name__)
COUNTED_AT_ONCE = 1000
"""Up to this many characters are counted in the event loop; longer texts go to a thread."""
_COUNTING = ThreadPoolExecutor(2, "caesura-counting")
"""Threads of our own: tools that hang may occupy all of asyncio's pool."""
_CANCELLED = Outcome(error_text("cancelled"), "cancelled")


class Dispatcher(AsyncClosing):
    """Runs the tool calls of one session, on one event loop.

    A call's failure is returned in its ToolResult and never raised. Two exceptions do propagate:
    KeyboardInterrupt, and CancelledError where the task that awaits the call is cancelled; the
    tool is then cancelled too. A tool's SystemExit counts as a failure: no tool may end the
    server.

    A tool's time-out applies to one attempt, without the wait for a concurrency slot. Tools that
    allow retries are run again after a failure or a time-out; the slot is free in between. A
    tool's breaker suspends it after too many consecutive failures, over all sessions.

    A tool that goes on after its cancellation is given up after `grace_seconds`. It keeps what it
    holds, but not its slot: a tool with one slot would otherwise be lost for all sessions.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Callable[[], float] = time.monotonic,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        max_result_characters: int = MAX_RESULT_CHARACTERS,
        count_tokens: Callable[[str], int] | None = None,
        max_result_tokens: int = DEFAULT_MAX_TOKENS,
        scope: Scope | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Run calls of the registry's tools.

        clock: seconds, for the results' times. sleep: waits between retries, in seconds. random:
        from 0 to 1, spreads those waits. count_tokens: counts the model's tokens, from any
        thread; results are then cut to `max_result_tokens`, or to the tool's own limit. Without
        it they are cut to `max_result_characters`. scope: the tools' resources for the session,
        closed with the dispatcher; None: a new one. grace_seconds: how long a tool may clean up
        once it was cancelled.
        """
        self.scope = Scope(uuid.uuid4().hex) if scope is None else scope
        self.conversation = ""
        """The value of `CallContext.conversation`; the owner sets it before a run."""
        self.asker = ""
        """The value of `CallContext.asker`; the owner sets it before a run."""
        self.tenant = ""
        """The value of `CallContext.tenant`; the owner sets it before a run."""
        self.on_report: Callable[[ToolCall, str], None] | None = None
        """Receives tools' progress reports, one line each; the owner sets it before a run."""
        self.on_expect: Callable[[ToolCall, float], None] | None = None
        """Receives tools' forecasts, in seconds from now; the owner sets it before a run."""
        self.log: CallLog | None = None
        """Knows the results of calls that were made before; the owner sets it before a run."""
        self.on_call: OnCall | None = None
        """Returns the observer of each call that starts; the owner sets it before a run."""
        self.usable: Callable[[], Awaitable[None]] | None = None
        """The value of `CallContext.usable`; the owner sets it before a run."""
        self._registry = registry
        self._runner = Runner(registry, clock, sleep, random, grace_seconds)
        self._clock = clock
        self._max_result_characters = max_result_characters
        self._max_result_tokens = max_result_tokens
        self._count_tokens = count_tokens
        self._flights: dict[asyncio.Task[ToolResult], Flight] = {}
        self._closed = False

    def count_by(self, count_tokens: Callable[[str], int], context_tokens: int) -> None:
        """Cut later results by a model's tokens, and to at most a quarter of its context."""
        self._count_tokens = count_tokens
        self._max_result_tokens = min(self._max_result_tokens, context_tokens // 4)

    @property
    def in_flight(self) -> int:
        """The number of calls that have started and have no result yet."""
        return len(self._flights)

    def start(self, call: ToolCall) -> asyncio.Task[ToolResult]:
        """Start a call, perhaps while the model still decodes, and return its task.

        The task runs whether or not it is awaited. Cancelling it cancels the call. After `aclose`
        no call starts, and the result is "cancelled".
        """
        watch = None if self.on_call is None else self.on_call(call)
        flight = Flight(call, self._clock(), watch, cancelled=self._closed)
        task = asyncio.get_running_loop().create_task(
            self._call_to_result(flight),
            name=f"tool {call.name}",
            context=None if watch is None else watch.context,
        )
        self._flights[task] = flight
        task.add_done_callback(self._call_ended)
        return task

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call and return its result."""
        return await self.start(call)

    async def run_all(self, calls: Iterable[ToolCall]) -> list[ToolResult]:
        """Run calls in parallel and return the results in the order of the calls."""
        return list(await asyncio.gather(*[self.start(call) for call in calls]))

    async def cancel(self) -> None:
        """Cancel every call in flight and wait until each has ended.

        The calls end with "cancelled" results. Where a tool of this session calls this, its own
        call is left running.
        """
        here = asyncio.current_task()
        flights = {
            task: flight for task, flight in self._flights.items() if flight.running is not here
        }
        for task, flight in flights.items():
            _cancel(task, flight)
        if flights:
            await asyncio.wait(flights)

    async def break_off(self, error: Exception) -> None:
        """Cancel every call in flight, since nobody can use the results; wait until each has ended.

        Their tasks raise `error`, and so does the run that waits for them.
        """
        flights = dict(self._flights)
        for task, flight in flights.items():
            flight.unusable = error
            _cancel(task, flight)
        if flights:
            await asyncio.wait(flights)

    def expected_seconds_left(self) -> float:
        """Return how long the calls in flight are expected to take from now, at least 0.

        A call's duration is what its tool states, or the mean of its earlier calls. A call without
        either is expected to end at once.
        """
        return max(map(self._left, self._flights.values()), default=0.0)

    def _left(self, flight: Flight) -> float:
        tool = self._registry.get(flight.call.name)
        if tool is None:
            return 0.0
        seconds = tool.expected_seconds
        if seconds is None:
            seconds = self._registry.observed[tool.name].mean_seconds or 0.0
        return max(0.0, seconds - (self._clock() - flight.started_at))

    async def aclose(self) -> None:
        """End the session: cancel its calls and refuse new ones. May be called twice.

        Closes the resources that tools kept for the session; a failure to close is logged.
        """
        self._closed = True
        await self.cancel()
        try:
            await self.scope.aclose()
        except Exception as error:
            LOG.warning("a resource of a tool's session did not close: %s", error_text(error))

    async def _call_to_result(self, flight: Flight) -> ToolResult:
        """Run the body of a call's task."""
        flight.begun = True
        if self.log is not None and (known := self.log.result_of(flight.call)) is not None:
            return known
        outcome = _CANCELLED
        if not flight.cancelled:
            with suppress(asyncio.CancelledError):  # its cause is determined below
                outcome = await self._outcome(flight)
        # If the task itself is being cancelled, returning a result would swallow that.
        swallowed = cancel_requests() > flight.cancelled
        result = self._result(flight, _CANCELLED if swallowed else outcome)
        if result.name in self._registry:
            self._registry.observed[result.name].note(result)
        if swallowed:
            raise asyncio.CancelledError
        if flight.unusable is not None:
            raise flight.unusable
        if self.log is not None and result.error != "cancelled":
            self.log.ended(result)
        return result

    def _call_ended(self, task: asyncio.Task[ToolResult]) -> None:
        flight = self._flights.pop(task)
        if flight.watch is not None:
            broken_off = task.cancelled() or task.exception() is not None
            flight.watch.ended(None if broken_off else task.result())

    def _result(self, flight: Flight, outcome: Outcome) -> ToolResult:
        return ToolResult(
            call_id=flight.call.id,
            name=flight.call.name,
            content=outcome.content,
            error=outcome.error,
            started_at=flight.started_at,
            seconds=self._clock() - flight.started_at,
            attempts=flight.attempts,
            artifacts=outcome.artifacts,
        )

    async def _outcome(self, flight: Flight) -> Outcome:
        """Return the call's outcome, its text cut to size."""
        tool = self._registry.get(flight.call.name)
        if tool is None:
            unknown = self._registry.unknown(flight.call.name)
            outcome = Outcome(error_text(unknown), "unknown_tool")
        else:
            outcome = await self._run(tool, flight)
        if outcome.artifacts and self.tenant:
            await asyncio.to_thread(note_owner, outcome.artifacts, self.tenant)
        return replace(outcome, content=await self._fitted(outcome.content, tool))

    async def _run(self, tool: Tool, flight: Flight) -> Outcome:
        """Check the arguments and run the tool."""
        try:
            kwargs = tool.arguments(flight.call.arguments)
        except ArgumentsError as error:
            return Outcome(error_text(error), "invalid_arguments")
        except Exception as error:  # raised by a validator that the developer wrote
            log_bug(error, flight.call)
            return Outcome(error_text(error), "failed")

        def report(text: str) -> None:
            if self.on_report is not None and not flight.cancelled:
                self.on_report(flight.call, text)

        def expect(seconds: float) -> None:
            if not 0 < seconds < inf:
                raise ValueError(f"expected seconds must be positive and finite, got {seconds!r}")
            if self.on_expect is not None and not flight.cancelled:
                self.on_expect(flight.call, seconds)

        context = CallContext(
            call=flight.call,
            scope=self.scope,
            conversation=self.conversation,
            report=report,
            watch=flight.watch,
            expect=expect,
            asker=self.asker,
            tenant=self.tenant,
            usable=self.usable,
        )
        if self.log is not None:
            context = _logged(context, tool, self.log)
            if context.notice and (why := await _settled(context, tool, kwargs, self.log)):
                return Outcome(error_text(why), "failed")
        return await self._runner.run(tool, kwargs, flight, context)

    async def _fitted(self, content: str, tool: Tool | None) -> str:
        """Return the text as valid Unicode, cut to size."""
        count, most = self._count_tokens, self._max_result_characters
        if count is None:
            return fit(content, most)
        own = None if tool is None else tool.max_result_tokens
        tokens = self._max_result_tokens if own is None else own
        if len(content) <= COUNTED_AT_ONCE:
            return fit_tokens(content, tokens, count, most)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_COUNTING, fit_tokens, content, tokens, count, most)


def _cancel(task: asyncio.Task[ToolResult], flight: Flight) -> None:
    # A task cancelled before its first step could not return a result; it reads the flag.
    if flight.begun and not flight.cancelled:
        task.cancel()
    flight.cancelled = True


def _logged(context: CallContext, tool: Tool, log: CallLog) -> CallContext:
    """Return the context of a call that writes down when its tool runs."""
    return replace(
        context,
        starts=partial(log.starts, context.call, tool),
        notice=log.notice(context.call, tool),
    )


async def _settled(
    context: CallContext, tool: Tool, arguments: dict[str, Any], log: CallLog
) -> str | None:
    """Decide about a call that may have been made already; return why it is not made again."""
    token = enter(context)  # a person may be asked on behalf of the call
    try:
        return await log.settle(context.call, tool, arguments, context.notice)
    finally:
        leave(token)
