"""Statistics of tools' calls: their number, errors and durations."""

from collections import Counter
from dataclasses import dataclass, field

from caesura.tools.result import ErrorKind, ToolResult

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
