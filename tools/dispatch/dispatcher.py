"""Running a session's tool calls: in parallel, within limits, with every failure as data."""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from caesura.tools.closing import AsyncClosing
from caesura.tools.context import CallContext, Scope
from caesura.tools.dispatch.attempt import Flight, Outcome, Runner, cancel_requests
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
"""Texts of up to so many characters are counted in the event loop, longer ones in a thread."""
_COUNTING = ThreadPoolExecutor(2, "caesura-counting")
"""Threads of our own: those of asyncio's pool may all be taken by what hangs."""
_CANCELLED = Outcome(error_text("cancelled"), "cancelled")


class Dispatcher(AsyncClosing):
    """Runs the tool calls of one session, on one event loop.

    What goes wrong with a call is told in its ToolResult, never raised. Two things do come out
    as exceptions: CancelledError, where the task that awaits the call is itself cancelled (the
    tool is then cancelled too), and KeyboardInterrupt. A tool's SystemExit is a failure like
    any other: no tool may end the server.

    A tool's time-out covers the running of one attempt. Waiting for a concurrency slot is not
    counted: a call is not to blame for the calls before it. Retries, for tools that allow them,
    follow a failure or a time-out, and free the slot in between. A tool with a breaker that has
    failed too often in a row, in whichever session, is not called for a while.
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
    ) -> None:
        """Run calls of the registry's tools.

        clock: seconds, for the results' times; sleep: waits between retries, in seconds; random:
        from 0 to 1, spreads those waits. count_tokens: in the model's tokens, callable from any
        thread; results are cut to `max_result_tokens`, or to what the tool says. Without it they
        are cut to `max_result_characters`. scope: what the tools keep for the session, closed
        with the dispatcher; None: a new one.
        """
        self.scope = Scope(uuid.uuid4().hex) if scope is None else scope
        self.conversation = ""
        """What `CallContext.conversation` says, set by the owner before a run."""
        self.asker = ""
        """What `CallContext.asker` says, set by the owner before a run."""
        self.on_report: Callable[[ToolCall, str], None] | None = None
        """Is told what a tool says of its progress, a line each, set by the owner before a run."""
        self.on_call: OnCall | None = None
        """Watches each call that starts, set by the owner before a run."""
        self._registry = registry
        self._runner = Runner(registry, clock, sleep, random)
        self._clock = clock
        self._max_result_characters = max_result_characters
        self._max_result_tokens = max_result_tokens
        self._count_tokens = count_tokens
        self._flights: dict[asyncio.Task[ToolResult], Flight] = {}
        self._closed = False

    def count_by(self, count_tokens: Callable[[str], int], context_tokens: int) -> None:
        """Cut results by a model's tokens from now on, and to a quarter of its context at most."""
        self._count_tokens = count_tokens
        self._max_result_tokens = min(self._max_result_tokens, context_tokens // 4)

    @property
    def in_flight(self) -> int:
        """How many calls have been started and have no result yet."""
        return len(self._flights)

    def start(self, call: ToolCall) -> asyncio.Task[ToolResult]:
        """Start a call, perhaps while the model still decodes; await the task for its result.

        The task runs whether or not it is awaited. Cancelling it cancels the call. After
        `aclose` it starts nothing: the result is "cancelled".
        """
        watch = None if self.on_call is None else self.on_call(call)
        flight = Flight(call, self._clock(), watch, cancelled=self._closed)
        task = asyncio.get_running_loop().create_task(
            self._fly(flight),
            name=f"tool {call.name}",
            context=None if watch is None else watch.context,
        )
        self._flights[task] = flight
        task.add_done_callback(self._landed)
        return task

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call to its result."""
        return await self.start(call)

    async def run_all(self, calls: Iterable[ToolCall]) -> list[ToolResult]:
        """Run calls in parallel; the results are in the order of the calls."""
        return list(await asyncio.gather(*[self.start(call) for call in calls]))

    async def cancel(self) -> None:
        """Cancel every call in flight and wait until each has ended.

        Those who await the calls get "cancelled" results. Called by a tool of this very
        session, it leaves that tool's own call alone.
        """
        here = asyncio.current_task()
        flights = {task: flight for task, flight in self._flights.items() if task is not here}
        for task, flight in flights.items():
            # A task cancelled before its first step could not return a result: it sees the mark.
            if flight.begun and not flight.cancelled:
                task.cancel()
            flight.cancelled = True
        if flights:
            await asyncio.wait(flights)

    async def aclose(self) -> None:
        """End the session: cancel what runs, start nothing more. May be called twice.

        What tools kept for the session is closed; a failure to close it is logged.
        """
        self._closed = True
        await self.cancel()
        try:
            await self.scope.aclose()
        except Exception as error:
            LOG.warning("what a tool kept for its session did not close: %s", error_text(error))

    async def _fly(self, flight: Flight) -> ToolResult:
        """The body of a call's task."""
        flight.begun = True
        outcome = _CANCELLED
        if not flight.cancelled:
            with suppress(asyncio.CancelledError):  # whose it was is seen below
                outcome = await self._outcome(flight)
        # Whoever awaits this task may be being cancelled: a result would swallow that.
        swallowed = cancel_requests() > flight.cancelled
        result = self._result(flight, _CANCELLED if swallowed else outcome)
        if result.name in self._registry:
            self._registry.observed[result.name].note(result)
        if swallowed:
            raise asyncio.CancelledError
        return result

    def _landed(self, task: asyncio.Task[ToolResult]) -> None:
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
        """What the call comes to, its text cut to size."""
        tool = self._registry.get(flight.call.name)
        if tool is None:
            unknown = self._registry.unknown(flight.call.name)
            outcome = Outcome(error_text(unknown), "unknown_tool")
        else:
            outcome = await self._run(tool, flight)
        return replace(outcome, content=await self._fitted(outcome.content, tool))

    async def _run(self, tool: Tool, flight: Flight) -> Outcome:
        """Check the arguments and run the tool."""
        try:
            kwargs = tool.arguments(flight.call.arguments)
        except ArgumentsError as error:
            return Outcome(error_text(error), "invalid_arguments")
        except Exception as error:  # from a validator that the developer wrote
            return Outcome(error_text(error), "failed")

        def report(text: str) -> None:
            if self.on_report is not None and not flight.cancelled:
                self.on_report(flight.call, text)

        context = CallContext(
            flight.call, self.scope, self.conversation, report, flight.watch, self.asker
        )
        return await self._runner.run(tool, kwargs, flight, context)

    async def _fitted(self, content: str, tool: Tool | None) -> str:
        """The text, cut to size, and always valid Unicode."""
        count, most = self._count_tokens, self._max_result_characters
        if count is None:
            return fit(content, most)
        own = None if tool is None else tool.max_result_tokens
        tokens = self._max_result_tokens if own is None else own
        if len(content) <= COUNTED_AT_ONCE:
            return fit_tokens(content, tokens, count, most)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_COUNTING, fit_tokens, content, tokens, count, most)
