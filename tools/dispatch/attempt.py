"""Runs one call of a tool, with retries."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from caesura.tools.artifacts import Artifact
from caesura.tools.context import CallContext, enter, leave
from caesura.tools.dispatch.breaker import Breaker, Resting
from caesura.tools.dispatch.call_observer import CallWatch
from caesura.tools.errors import TimedOut, asked_pause_seconds, may_be_retried
from caesura.tools.registry import Registry
from caesura.tools.result import ErrorKind, Output, ToolCall, error_text, text_of
from caesura.tools.tool import Tool

BACKOFF_SECONDS = 0.1
"""The longest pause before the first retry; it doubles for each further retry."""
BACKOFF_CEILING_SECONDS = 10.0
"""The longest pause before any retry, unless the failure asks for a longer one."""
PATIENCE_SECONDS = 30.0
"""A failure that asks for a longer pause than this is not retried."""


@dataclass(slots=True)
class Flight:
    """A running call."""

    call: ToolCall
    started_at: float
    watch: CallWatch | None = None
    begun: bool = False
    """Whether the call's task has taken its first step."""
    cancelled: bool = False
    """Whether the dispatcher cancelled the call, and not the task that awaits it."""
    attempts: int = 0
    """How often the tool has run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt, or of the whole call."""

    content: str
    error: ErrorKind | None = None
    artifacts: tuple[Artifact, ...] = ()
    may_be_retried: bool = True
    asked_pause_seconds: float = 0.0


class Runner:
    """Runs calls of a registry's tools, within their slots, time-outs and breakers."""

    def __init__(
        self,
        registry: Registry,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        random: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._sleep = sleep
        self._random = random

    async def run(
        self, tool: Tool, kwargs: dict[str, Any], flight: Flight, context: CallContext
    ) -> Outcome:
        """Run the tool, with its retries, and count the attempts in `flight`.

        Raises CancelledError where the task was cancelled, even if the tool raised another error.
        """
        breaker = self._registry.breakers.of(tool)
        outcome: Outcome | None = None
        backoff_seconds = BACKOFF_SECONDS
        while True:
            try:
                outcome = await self._attempt(tool, kwargs, flight, context, breaker)
            except Resting as error:
                # If this call's own failure suspended the tool, that failure tells the model more.
                return outcome or Outcome(error_text(error), "resting")
            if outcome.error is None:
                return outcome
            if cancel_requests():
                # The tool replaced its cancellation by another error: the call is still cancelled.
                raise asyncio.CancelledError
            pause_seconds = outcome.asked_pause_seconds
            if (
                flight.attempts > tool.retries
                or not outcome.may_be_retried
                or pause_seconds > PATIENCE_SECONDS
            ):
                return outcome
            context.mark("retry", error=outcome.error)
            # Full jitter: sessions that failed together must not retry together.
            await self._sleep(pause_seconds + self._random() * backoff_seconds)
            backoff_seconds = min(2 * backoff_seconds, BACKOFF_CEILING_SECONDS)

    async def _attempt(
        self,
        tool: Tool,
        kwargs: dict[str, Any],
        flight: Flight,
        context: CallContext,
        breaker: Breaker | None,
    ) -> Outcome:
        """Run the tool once, within its slot and its time-out. Raises Resting."""
        if breaker is not None:
            breaker.check(self._clock())  # fail now, not after the wait for a slot
        async with self._registry.limits.slot(tool):
            era = 0 if breaker is None else breaker.begin(self._clock())
            flight.attempts += 1
            limit = asyncio.timeout(tool.timeout_seconds)
            token = enter(context)
            failed: bool | None = None
            try:
                async with limit:
                    value = await tool.call(**kwargs)
                outcome = _success(value)
                failed = False
            except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # includes SystemExit and a Rust extension's panic
                if limit.expired():
                    reason = f"no answer within {tool.timeout_seconds:g} seconds"
                    outcome = Outcome(error_text(reason), "timeout")
                else:
                    outcome = _failure(error)
                if outcome.may_be_retried and not cancel_requests():
                    failed = True
            finally:
                leave(token)
                if breaker is not None:
                    breaker.end(era, self._clock(), failed=failed)
            return outcome


def cancel_requests() -> int:
    """Return how often the current task has been asked to cancel."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _success(value: Any) -> Outcome:
    if isinstance(value, Output):
        return Outcome(value.text, artifacts=value.artifacts)
    return Outcome(text_of(value))


def _failure(error: BaseException) -> Outcome:
    return Outcome(
        error_text(error),
        "timeout" if isinstance(error, TimedOut) else "failed",
        may_be_retried=may_be_retried(error),
        asked_pause_seconds=asked_pause_seconds(error),
    )
