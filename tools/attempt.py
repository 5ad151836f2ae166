"""Runs one call of a tool: with retries, within its slot, its breaker and its time-out.

The tool's code runs in a task of its own. A coroutine may swallow its cancellation. Whoever awaits
it would then wait for as long as it likes: a request, and the end of the server. So nobody awaits
it: its task is watched, and given up if it does not end when it must.
"""

import asyncio
import ctypes
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from caesura.tools.artifacts import Artifact
from caesura.tools.context import CallContext, CallWatch, OnExpect, OnReport, enter
from caesura.tools.errors import (
    TimedOut,
    asked_pause_seconds,
    is_meant_for_the_model,
    may_be_retried,
)
from caesura.tools.limits import Breaker, Resting
from caesura.tools.registry import Registry
from caesura.tools.result import ErrorKind, Output, ToolCall, error_text, text_of
from caesura.tools.run_view import handing
from caesura.tools.tool import Tool

LOG = logging.getLogger(__name__)
BACKOFF_SECONDS = 0.1
"""The longest pause before the first retry; it doubles for each further retry."""
BACKOFF_CEILING_SECONDS = 10.0
"""The longest pause before any retry, unless the failure asks for a longer one."""
PATIENCE_SECONDS = 30.0
"""A failure that asks for a longer pause than this is not retried."""
GRACE_SECONDS = 5.0
"""How long a tool may clean up once it was cancelled."""


class Expired(Exception):
    """The tool ran out of time, and ended when it was cancelled."""


class Stuck(Expired):
    """The tool ran out of time, and went on although it was cancelled."""


class Escaped(Exception):
    """The tool raised what would end more than its own call; the message says what."""


@dataclass(slots=True)
class Flight:
    """A running call."""

    call: ToolCall
    started_at: float
    watch: CallWatch | None = None
    on_report: OnReport | None = None
    on_expect: OnExpect | None = None
    begun: bool = False
    """Whether the call's task has taken its first step."""
    cancelled: bool = False
    """Whether the dispatcher cancelled the call, and not the task that awaits it."""
    attempts: int = 0
    """How often the tool has run."""
    running: asyncio.Task[Any] | None = None
    """The task in which the tool itself runs."""
    unusable: Exception | None = None
    """Why nobody can use the result: the call's task raises it."""


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
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Create it. A tool may clean up for `grace_seconds` once it was cancelled."""
        self._registry = registry
        self._grace_seconds = grace_seconds
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
            failed: bool | None = None
            try:
                if not tool.approval:  # a call with an approval starts behind it
                    await context.starts()
                outcome = _success(await self._bounded(tool, kwargs, flight, context))
                failed = False
            except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # includes SystemExit and a Rust extension's panic
                log_bug(error, flight.call)
                outcome = _failure(error, tool)
                if outcome.may_be_retried and not cancel_requests():
                    failed = True
            finally:
                if breaker is not None:
                    breaker.end(era, self._clock(), failed=failed)
            return outcome

    async def _bounded(
        self, tool: Tool, kwargs: dict[str, Any], flight: Flight, context: CallContext
    ) -> Any:
        """Run the tool within its time-out; give it up if it does not end when it must."""

        def given_up() -> None:
            self._registry.observed[tool.name].given_up += 1
            LOG.warning(
                "the tool %s was cancelled and still runs after %g seconds: it is given up, and "
                "what it holds stays with it; let it end when it gets a CancelledError",
                tool.name,
                self._grace_seconds,
            )

        def runs_in(task: asyncio.Task[Any]) -> None:
            flight.running = task

        async def work() -> Any:
            enter(context)  # in the tool's own task, and so for the tool alone
            with handing(context.view()):
                return await tool.call(**kwargs)

        return await run_bounded(work, tool.timeout_seconds, self._grace_seconds, given_up, runs_in)


def cancel_requests() -> int:
    """Return how often the current task has been asked to cancel."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _success(value: Any) -> Outcome:
    if isinstance(value, Output):
        return Outcome(value.text, artifacts=value.artifacts)
    return Outcome(text_of(value))


def log_bug(error: BaseException, call: ToolCall) -> None:
    """Log where a tool failed, for its author: the model and the client see the message alone."""
    if not isinstance(error, Expired) and not is_meant_for_the_model(error):
        LOG.warning(
            "the tool %s failed in the call %s: %s; raise caesura.tools.errors.ToolError for a"
            " failure without a stack trace",
            call.name,
            call.id,
            error_text(error).removeprefix("error: "),
            exc_info=error,
        )


def _failure(error: BaseException, tool: Tool) -> Outcome:
    if isinstance(error, Expired):
        reason = f"no answer within {tool.timeout_seconds:g} seconds"
        # What still runs may not run a second time beside itself.
        stuck = isinstance(error, Stuck)
        return Outcome(error_text(reason), "timeout", may_be_retried=not stuck)
    return Outcome(
        error_text(error),
        "timeout" if isinstance(error, TimedOut) else "failed",
        may_be_retried=may_be_retried(error),
        asked_pause_seconds=asked_pause_seconds(error),
    )


async def run_bounded(
    work: Callable[[], Awaitable[Any]],
    seconds: float | None,
    grace_seconds: float = GRACE_SECONDS,
    on_given_up: Callable[[], object] = lambda: None,
    on_task: Callable[[asyncio.Task[Any]], object] = lambda task: None,
) -> Any:
    """Return what `work` returns within `seconds`; raise what it raises.

    Work that is out of time, or whose caller is cancelled, is cancelled. It may then take
    `grace_seconds`. Work that still runs is given up: nobody waits for it any more, and
    `on_given_up` is called. `on_task` is told the task in which the work runs.

    Raises `Expired`, `Stuck`, `Escaped`, and CancelledError where the caller is cancelled, or the
    work cancels itself. Work that answers its cancellation with a value or an error has ended with
    that.
    """
    task = asyncio.get_running_loop().create_task(_outcome(work))
    on_task(task)
    expired, cancelled = await _watched(task, seconds, grace_seconds)
    if not task.done():
        _give_up(task)
        on_given_up()
        if cancelled:
            raise asyncio.CancelledError
        raise Stuck
    if task.cancelled():
        if expired and not cancelled:
            raise Expired
        raise asyncio.CancelledError  # the caller's own, or the tool cancelled itself
    value, error = task.result()
    if error is None:
        return value
    if expired:
        raise Expired from error
    if isinstance(error, GeneratorExit):
        raise Escaped(str(error) or "the tool raised GeneratorExit") from None
    raise error


async def _watched(
    task: asyncio.Task[Any], seconds: float | None, grace_seconds: float
) -> tuple[bool, bool]:
    """Wait for a task; return whether it ran out of time, and whether the caller was cancelled."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    expired = cancelled = False
    while not task.done():
        left = None if until is None else max(0.0, until - loop.time())
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            if not (expired or cancelled):
                until = loop.time() + grace_seconds
            cancelled = True
            task.cancel()
            continue
        if task.done() or expired or cancelled:
            break
        expired = True
        task.cancel()
        until = loop.time() + grace_seconds
    return expired, cancelled


async def _outcome(work: Callable[[], Awaitable[Any]]) -> tuple[Any, BaseException | None]:
    """Return what the work returns or raises, so that SystemExit does not leave the event loop."""
    try:
        return await work(), None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # includes GeneratorExit and a Rust extension's panic
        return None, error


def _give_up(task: asyncio.Task[Any]) -> None:
    """Leave a task alone: neither the end of its loop nor that of the interpreter waits for it."""
    # Otherwise `asyncio.run` would cancel it once more, and wait for it without a bound.
    asyncio._unregister_task(task)
    # Collecting it would close its coroutine, which may swallow that too, and run for ever.
    reference = ctypes.py_object(task)
    ctypes.pythonapi.Py_IncRef(reference)

    def ended(task: asyncio.Task[Any]) -> None:
        ctypes.pythonapi.Py_DecRef(reference)
        if not task.cancelled():
            task.exception()  # so that it is not logged as lost

    task.add_done_callback(ended)
