"""Running a session's tool calls: in parallel, within limits, with every failure as data."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from caesura.tools.arguments import ArgumentsError
from caesura.tools.registry import Registry
from caesura.tools.result import (
    MAX_RESULT_CHARACTERS,
    ErrorKind,
    ToolCall,
    ToolResult,
    error_text,
    fit,
    malformed,
    text_of,
)
from caesura.tools.tool import Tool

__all__ = ["Dispatcher", "ErrorKind", "ToolCall", "ToolResult", "malformed"]

BACKOFF_SECONDS = 0.1
"""The pause before the first retry; each further one is twice as long."""
BACKOFF_CEILING_SECONDS = 10.0
"""The longest pause before a retry."""


@dataclass(slots=True)
class _Flight:
    """A call that was started, while it runs."""

    call: ToolCall
    started_at: float
    begun: bool = False
    """Whether its task has taken its first step."""
    cancelled: bool = False
    """Whether the dispatcher, rather than whoever awaits the call, cancelled it."""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    content: str
    error: ErrorKind | None = None


_CANCELLED = _Outcome(error_text("cancelled"), "cancelled")


class Dispatcher:
    """Runs the tool calls of one session, on one event loop.

    What goes wrong with a call is told in its ToolResult, never raised. Two things do come out
    as exceptions: CancelledError, where the task that awaits the call is itself cancelled (the
    tool is then cancelled too), and KeyboardInterrupt. A tool's SystemExit is a failure like
    any other: no tool may end the server.

    A tool's time-out covers the running of one attempt. Waiting for a concurrency slot is not
    counted: a call is not to blame for the calls before it. Retries, for tools that allow them,
    follow a failure or a time-out, and free the slot in between.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Callable[[], float] = time.monotonic,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        max_result_characters: int = MAX_RESULT_CHARACTERS,
    ) -> None:
        """Run calls of the registry's tools.

        clock: seconds, for the results' times; sleep: waits between retries, in seconds.
        """
        self._registry = registry
        self._clock = clock
        self._sleep = sleep
        self._max_result_characters = max_result_characters
        self._flights: dict[asyncio.Task[ToolResult], _Flight] = {}
        self._closed = False

    @property
    def in_flight(self) -> int:
        """How many calls have been started and have no result yet."""
        return len(self._flights)

    def start(self, call: ToolCall) -> asyncio.Task[ToolResult]:
        """Start a call, perhaps while the model still decodes; await the task for its result.

        The task runs whether or not it is awaited. Cancelling it cancels the call. After
        `aclose` it starts nothing: the result is "cancelled".
        """
        flight = _Flight(call, self._clock(), cancelled=self._closed)
        task = asyncio.get_running_loop().create_task(self._fly(flight), name=f"tool {call.name}")
        self._flights[task] = flight
        task.add_done_callback(self._flights.pop)
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
        """End the session: cancel what runs, start nothing more. May be called twice."""
        self._closed = True
        await self.cancel()

    async def __aenter__(self) -> "Dispatcher":
        """Return the dispatcher, to be closed at the end of the block."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the dispatcher."""
        await self.aclose()

    async def _fly(self, flight: _Flight) -> ToolResult:
        """The body of a call's task."""
        flight.begun = True
        outcome = _CANCELLED
        if not flight.cancelled:
            with suppress(asyncio.CancelledError):  # whose it was is seen below
                outcome = await self._outcome(flight)
            if _cancel_requests() > flight.cancelled:
                # Whoever awaits this task is being cancelled: a result would swallow that.
                raise asyncio.CancelledError
        return ToolResult(
            call_id=flight.call.id,
            name=flight.call.name,
            content=fit(outcome.content, self._max_result_characters),
            error=outcome.error,
            started_at=flight.started_at,
            seconds=self._clock() - flight.started_at,
            attempts=flight.attempts,
        )

    async def _outcome(self, flight: _Flight) -> _Outcome:
        """Find the tool, check the arguments, run it until it succeeds or may not be retried."""
        tool = self._registry.get(flight.call.name)
        if tool is None:
            return _Outcome(error_text(self._registry.unknown(flight.call.name)), "unknown_tool")
        try:
            kwargs = tool.arguments(flight.call.arguments)
        except ArgumentsError as error:
            return _Outcome(error_text(error), "invalid_arguments")
        except Exception as error:  # from a validator that the developer wrote
            return _Outcome(error_text(error), "failed")
        pause_seconds = BACKOFF_SECONDS
        while True:
            outcome = await self._attempt(tool, kwargs, flight)
            if outcome.error is None:
                return outcome
            if _cancel_requests():
                # The tool answered its cancellation with another error: it is cancelled still.
                raise asyncio.CancelledError
            if flight.attempts > tool.retries:
                return outcome
            await self._sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, BACKOFF_CEILING_SECONDS)

    async def _attempt(self, tool: Tool, kwargs: dict[str, Any], flight: _Flight) -> _Outcome:
        """Run the tool once, within its concurrency slot and its time."""
        async with self._registry.limits.slot(tool):
            flight.attempts += 1
            limit = asyncio.timeout(tool.timeout_seconds)
            try:
                async with limit:
                    value = await tool.call(**kwargs)
                return _Outcome(text_of(value))
            except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # SystemExit too; and a Rust extension's panic
                if limit.expired():
                    reason = f"no answer within {tool.timeout_seconds:g} seconds"
                    return _Outcome(error_text(reason), "timeout")
                return _Outcome(error_text(error), "failed")


def _cancel_requests() -> int:
    """How often the current task has been asked to cancel."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
