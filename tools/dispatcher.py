"""Runs a session's tool calls in parallel, within limits, and returns failures as data."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from caesura.tools.artifacts import note_owner
from caesura.tools.attempt import GRACE_SECONDS, Flight, Outcome, Runner, cancel_requests, log_bug
from caesura.tools.closing import AsyncClosing
from caesura.tools.context import (
    CallContext,
    CallLog,
    OnExpect,
    OnReport,
    Scope,
    ToolRun,
    enter,
    leave,
)
from caesura.tools.registry import Registry
from caesura.tools.result import (
    ErrorKind,
    ToolCall,
    ToolResult,
    error_text,
    malformed,
)
from caesura.tools.schema.arguments import ArgumentsError, arguments_object
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
        run: ToolRun | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Run calls of the registry's tools, for `run`; None: a run of its own.

        clock: seconds, for the results' times. sleep: waits between retries, in seconds. random:
        from 0 to 1, spreads those waits. grace_seconds: how long a tool may clean up once it was
        cancelled.
        """
        self._run = ToolRun() if run is None else run
        self._registry = registry
        self._runner = Runner(registry, clock, sleep, random, grace_seconds)
        self._clock = clock
        self._flights: dict[asyncio.Task[ToolResult], Flight] = {}
        self._closed = False

    @property
    def scope(self) -> Scope:
        """The tools' resources for the session."""
        return self._run.scope

    @property
    def in_flight(self) -> int:
        """The number of calls that have started and have no result yet."""
        return len(self._flights)

    def start(
        self,
        call: ToolCall,
        *,
        on_report: OnReport | None = None,
        on_expect: OnExpect | None = None,
    ) -> asyncio.Task[ToolResult]:
        """Start a call, perhaps while the model still decodes, and return its task.

        The task runs whether or not it is awaited. Cancelling it cancels the call. After `aclose`
        no call starts, and the result is "cancelled".
        """
        watch = None if self._run.on_call is None else self._run.on_call(call)
        flight = Flight(call, self._clock(), watch, on_report, on_expect, cancelled=self._closed)
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
            await self._run.scope.aclose()
        except Exception as error:
            LOG.warning("a resource of a tool's session did not close: %s", error_text(error))

    async def _call_to_result(self, flight: Flight) -> ToolResult:
        """Run the body of a call's task."""
        flight.begun = True
        if (
            self._run.log is not None
            and (known := self._run.log.result_of(flight.call)) is not None
        ):
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
        if self._run.log is not None and result.error != "cancelled":
            self._run.log.ended(result)
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
        context = self._context(flight)
        if tool is None:
            unknown = self._registry.unknown(flight.call.name)
            outcome = Outcome(error_text(unknown), "unknown_tool")
        else:
            outcome = await self._run_tool(tool, flight, context)
        if (hooks := self._run.hooks) is not None:
            result = await hooks.after_call(context, self._result(flight, outcome))
            outcome = replace(outcome, content=result.content, error=result.error)
        if outcome.artifacts and self._run.tenant:
            await asyncio.to_thread(note_owner, outcome.artifacts, self._run.tenant)
        return replace(outcome, content=await self._fitted(outcome.content, tool))

    async def _run_tool(self, tool: Tool, flight: Flight, context: CallContext) -> Outcome:
        """Check the arguments and run the tool."""
        try:
            kwargs = tool.arguments(flight.call.arguments)
        except ArgumentsError as error:
            return Outcome(error_text(error), "invalid_arguments")
        except Exception as error:  # raised by a validator that the developer wrote
            log_bug(error, flight.call)
            return Outcome(error_text(error), "failed")
        if (hooks := self._run.hooks) is not None:
            said = await hooks.before_call(context, arguments_object(flight.call.arguments))
            if isinstance(said, str):
                return Outcome(error_text(said), "refused")
            if said is not None:
                kwargs = _changed(tool, said)
        if self._run.log is not None:
            context = _logged(context, tool, self._run.log)
            if context.notice and (why := await _settled(context, tool, kwargs, self._run.log)):
                return Outcome(error_text(why), "failed")
        return await self._runner.run(tool, kwargs, flight, context)

    def _context(self, flight: Flight) -> CallContext:
        def report(text: str) -> None:
            if flight.on_report is not None and not flight.cancelled:
                flight.on_report(flight.call, text)

        def expect(seconds: float) -> None:
            if not 0 < seconds < inf:
                raise ValueError(f"expected seconds must be positive and finite, got {seconds!r}")
            if flight.on_expect is not None and not flight.cancelled:
                flight.on_expect(flight.call, seconds)

        return CallContext(flight.call, self._run, report, flight.watch, expect)

    async def _fitted(self, content: str, tool: Tool | None) -> str:
        """Return the text as valid Unicode, cut to size."""
        own = None if tool is None else tool.max_result_tokens
        results = self._run.results
        if results.count_tokens is None or len(content) <= COUNTED_AT_ONCE:
            return results.cut(content, own)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_COUNTING, results.cut, content, own)


def _changed(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for a tool, from those that a hook gave. Raises ValueError."""
    from pydantic_core import to_json  # a late import: it takes long, and few hooks change a call

    try:
        return tool.arguments(to_json(arguments).decode())
    except ArgumentsError as error:
        raise ValueError(
            f"a hook changed the arguments of {tool.name} to {arguments!r}, which do not fit:"
            f" {error}"
        ) from error


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
