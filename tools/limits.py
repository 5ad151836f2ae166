"""What sessions share about a tool: slots for its calls, its breaker, and statistics of its calls.

A `Registry` holds them for all sessions that use it, or a selection from it.
"""

import asyncio
import threading
from collections import Counter, deque
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from caesura.tools.loops import tell
from caesura.tools.result import ErrorKind, ToolResult
from caesura.tools.tool import Tool

_FAILURES: tuple[ErrorKind, ...] = ("failed", "timeout")


@dataclass(slots=True)
class CallStats:
    """Statistics of one tool's calls, over all sessions that share a registry."""

    calls: int = 0
    """Calls that have ended, with or without an error."""
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    """Calls that ended with an error, by kind."""
    ran: int = 0
    """Calls that ran the tool at least once."""
    attempts: int = 0
    """How often the tool ran, retries included."""
    seconds: float = 0.0
    """Total duration of the calls that ran, including waits for a slot and retries."""
    longest_seconds: float = 0.0
    given_up: int = 0
    """Runs of the tool that went on although they were cancelled, and that nobody waits for."""

    @property
    def failures(self) -> int:
        """The number of calls that failed or timed out in the end."""
        return sum(self.errors[kind] for kind in _FAILURES)

    @property
    def mean_seconds(self) -> float | None:
        """The mean duration of a call that ran; None before the first one."""
        return self.seconds / self.ran if self.ran else None

    def note(self, result: ToolResult) -> None:
        """Add one call's result to the statistics."""
        self.calls += 1
        if result.error is not None:
            self.errors[result.error] += 1
        if result.attempts:
            self.ran += 1
            self.attempts += result.attempts
            self.seconds += result.seconds
            self.longest_seconds = max(self.longest_seconds, result.seconds)


REST_SECONDS = 5.0
"""The first suspension; each failed trial doubles it."""
REST_CEILING_SECONDS = 300.0
"""The longest suspension."""


class Resting(RuntimeError):
    """The breaker has suspended the tool. The message is for the model."""


class Breaker:
    """Counts consecutive failures of one tool and suspends it after `failures` of them.

    After a suspension one call tries the tool while others still fail at once. If the trial
    succeeds, the breaker closes and its counts are reset. If it fails, the next suspension is
    twice as long. The caller passes the time, in seconds of any monotonic clock.
    """

    def __init__(self, name: str, failures: int) -> None:
        self._name = name
        self._most = failures
        self._in_a_row = 0
        self._rest_seconds = REST_SECONDS
        self._rests_until: float | None = None
        self._trying = False
        self._era = 0
        """Grows with each change of state; results of calls from an earlier era are ignored."""

    def check(self, now: float) -> None:
        """Raise Resting if the breaker would refuse a call at this time."""
        if self._rests_until is None:
            return
        if now < self._rests_until:
            seconds = self._rests_until - now
            raise Resting(
                f"the tool {self._name!r} has failed {self._in_a_row} times in a row and rests "
                f"for {seconds:.0f} seconds: go on without it, or try later"
            )
        if self._trying:
            raise Resting(
                f"the tool {self._name!r} has failed {self._in_a_row} times in a row and is being "
                "tried again: go on without it, or try later"
            )

    def begin(self, now: float) -> int:
        """Let a call through and return the era to pass to `end`. Raises Resting."""
        self.check(now)
        if self._rests_until is not None:
            self._trying = True
            self._era += 1
        return self._era

    def end(self, era: int, now: float, *, failed: bool | None) -> None:
        """Record a call's result; None: it does not show whether the tool works."""
        if era != self._era:
            return
        if failed is None:
            self._trying = False
        elif failed:
            self._in_a_row += 1
            if self._trying:
                self._rest_seconds = min(2 * self._rest_seconds, REST_CEILING_SECONDS)
            if self._trying or self._in_a_row >= self._most:
                self._rest(now)
        else:
            self._in_a_row = 0
            self._rest_seconds = REST_SECONDS
            self._rests_until = None
            self._trying = False

    def _rest(self, now: float) -> None:
        self._rests_until = now + self._rest_seconds
        self._trying = False
        self._era += 1


class Breakers:
    """The breakers of tools, shared by the sessions that share a registry.

    A tool that is made again, such as after an MCP server lists its tools again, keeps its
    breaker.
    """

    def __init__(self) -> None:
        self._breakers: dict[tuple[str, int], Breaker] = {}

    def of(self, tool: Tool) -> Breaker | None:
        """Return the tool's breaker; None for a tool without one."""
        if tool.breaker is None:
            return None
        key = (tool.name, tool.breaker)
        if key not in self._breakers:
            self._breakers[key] = Breaker(*key)
        return self._breakers[key]


class _Slot:
    """So many at the same time, in order of arrival, over all event loops and threads."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            place = loop, loop.create_future()
            self._waiting.append(place)
        try:
            await place[1]
        except BaseException:
            with self._lock:
                was_given = place not in self._waiting
                if not was_given:
                    self._waiting.remove(place)
            if was_given:
                self._release()
            raise

    async def __aexit__(self, *exception: object) -> None:
        self._release()

    def _release(self) -> None:
        """Give the slot to who waits longest, unless its event loop is closed."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                loop, given = self._waiting.popleft()
            if tell(loop, _give, given):
                return


def _give(given: asyncio.Future[None]) -> None:
    if not given.done():  # else who was cancelled passes it on
        given.set_result(None)


class Slots:
    """The concurrency slots of tools, shared by the sessions that share a registry.

    A tool that is made again, such as after an MCP server lists its tools again, keeps its slots.
    They count for all event loops and threads together.
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], _Slot] = {}

    def slot(self, tool: Tool) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for a slot, in order of arrival, and holds it."""
        if tool.concurrency is None:
            return nullcontext()
        return self._slots.setdefault((tool.name, tool.concurrency), _Slot(tool.concurrency))
