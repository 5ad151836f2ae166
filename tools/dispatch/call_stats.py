"""What has been seen of tools' calls: how many, how they ended, how long they took."""

from collections import Counter
from dataclasses import dataclass, field

from caesura.tools.result import ErrorKind, ToolResult

_FAILURES: tuple[ErrorKind, ...] = ("failed", "timeout")


@dataclass(slots=True)
class Observed:
    """One tool's calls so far, over all sessions that share a registry."""

    calls: int = 0
    """Calls that have ended, however they did."""
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    """How many of them ended with which error."""
    ran: int = 0
    """Those of them that were run at least once."""
    attempts: int = 0
    """How often the tool was run, retries included."""
    seconds: float = 0.0
    """What the calls that ran took together, waiting for a slot and retries included."""
    longest_seconds: float = 0.0

    @property
    def failures(self) -> int:
        """Calls that failed or timed out in the end."""
        return sum(self.errors[kind] for kind in _FAILURES)

    @property
    def mean_seconds(self) -> float | None:
        """How long a call takes; None before one ran."""
        return self.seconds / self.ran if self.ran else None

    def note(self, result: ToolResult) -> None:
        """Count one call's result."""
        self.calls += 1
        if result.error is not None:
            self.errors[result.error] += 1
        if result.attempts:
            self.ran += 1
            self.attempts += result.attempts
            self.seconds += result.seconds
            self.longest_seconds = max(self.longest_seconds, result.seconds)
