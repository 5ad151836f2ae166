"""When a dead engine is started again, and when its deaths are a crash loop.

Times are seconds of any clock that never goes backwards; the caller hands them in.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Exponential back-off with a ceiling, and the deaths that make a crash loop.

    A death after a quiet window is answered at once, since most deaths are single. A failed start
    counts as a death. Raises `ValueError` for a rule that is not positive.
    """

    first_seconds: float = 1.0
    """The pause before the second restart of a window; it doubles for each further one."""
    ceiling_seconds: float = 30.0
    most_deaths: int = 5
    """So many deaths within the window are a crash loop."""
    window_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("first_seconds", "ceiling_seconds", "most_deaths", "window_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")


class RestartPolicy:
    """Counts an engine's deaths and answers each."""

    def __init__(self, rules: RestartRules) -> None:
        """Create it before the first death."""
        self._rules = rules
        self._deaths: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Count a death at `now`; return the seconds to wait before the restart.

        Returns None in a crash loop: another restart would not help.
        """
        rules = self._rules
        self._deaths.append(now)
        while self._deaths[0] <= now - rules.window_seconds:
            self._deaths.popleft()
        count = len(self._deaths)
        if count >= rules.most_deaths:
            return None
        if count == 1:
            return 0.0
        # The exponent is bounded, since a large one would overflow before the ceiling holds.
        return min(rules.ceiling_seconds, rules.first_seconds * 2.0 ** min(count - 2, 60))

    @property
    def why_given_up(self) -> str:
        """The reason for giving up, for a person: how many deaths within how long."""
        window = self._rules.window_seconds
        return f"it died {len(self._deaths)} times within {window:g} s"
