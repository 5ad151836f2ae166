"""A token bucket: how much may be taken in a minute. It has no clock of its own."""

from math import inf

MINUTE = 60.0


class Bucket:
    """Holds up to `per_minute`, and gains as much in a minute. What is taken may leave a debt."""

    def __init__(self, per_minute: int, now: float) -> None:
        """Create a full bucket at the time `now`, in seconds."""
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at = now

    def level(self, now: float) -> float:
        """Return what may be taken; less than 0 is a debt."""
        gained = max(0.0, now - self._at) * self.per_minute / MINUTE
        self._level = min(self.per_minute, self._level + gained)
        self._at = max(self._at, now)
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Take some, also more than there is."""
        self._level = self.level(now) - amount

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until so much may be taken; infinite if it never may."""
        if amount > self.per_minute:
            return inf
        return max(0.0, amount - self.level(now)) * MINUTE / self.per_minute
