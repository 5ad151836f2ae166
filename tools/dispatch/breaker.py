"""A circuit breaker: suspends a tool that keeps failing, so that sessions do not wait for it."""

from caesura.tools.tool import Tool

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
