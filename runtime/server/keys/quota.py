"""What is left to each key: requests in flight, requests and tokens in a minute.

Answers tell a key what is left of its limits.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import ceil, inf

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.keys.sender import Sender

MINUTE = 60.0
CODE = "rate_limit_exceeded"
IN_FLIGHT_RETRY_SECONDS = 1.0


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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request of a key may not begin, and when to try again, in seconds."""

    what: str
    limit: int
    seconds: float

    def error(self) -> ApiError:
        """Return the error 429 for the client."""
        seconds = max(1, ceil(self.seconds))
        return ApiError(
            429,
            f"Rate limit reached for this key: at most {self.limit} {self.what}. Retry after"
            f" {seconds} s.",
            code=CODE,
            headers={"Retry-After": str(seconds)},
        )


class Quota:
    """What is left to one key. It has no clock of its own; times are in seconds."""

    def __init__(self, key: Key, now: float) -> None:
        self._key = key
        self._in_flight = 0
        self._requests = Bucket(key.rpm, now) if key.rpm else None
        self._tokens = Bucket(key.tpm, now) if key.tpm else None

    def begin(self, now: float) -> Refusal | None:
        """Begin a request, or say why it may not begin.

        Tokens are counted behind a request, so a key with a debt waits until it is paid.
        """
        key = self._key
        if key.in_flight and self._in_flight >= key.in_flight:
            return Refusal("requests in flight", key.in_flight, IN_FLIGHT_RETRY_SECONDS)
        if (refusal := self.count(now)) is not None:
            return refusal
        self._in_flight += 1
        return None

    def count(self, now: float) -> Refusal | None:
        """Count a request that is a part of one in flight, or say why it is refused."""
        key = self._key
        if self._requests is not None and (wait := self._requests.seconds_until(1, now)) > 0:
            return Refusal("requests in a minute", key.rpm, wait)
        if self._tokens is not None and (wait := self._tokens.seconds_until(1, now)) > 0:
            return Refusal("tokens in a minute", key.tpm, wait)
        if self._requests is not None:
            self._requests.take(1, now)
        return None

    def end(self) -> None:
        """End a request that has begun."""
        self._in_flight -= 1

    def spend(self, tokens: int, now: float) -> None:
        """Count the tokens of a request."""
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def headers(self, now: float) -> dict[str, str]:
        """Return the headers that tell what is left, under OpenAI's names."""
        told: dict[str, str] = {}
        for name, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                full = bucket.seconds_until(bucket.per_minute, now)
                told |= {
                    f"x-ratelimit-limit-{name}": str(bucket.per_minute),
                    f"x-ratelimit-remaining-{name}": str(max(0, int(bucket.level(now)))),
                    f"x-ratelimit-reset-{name}": f"{full:.3f}s",
                }
        return told


class Quotas:
    """The quotas of a server's keys that have limits."""

    def __init__(self, keys: Collection[Key], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of = {key.tenant: Quota(key, clock()) for key in keys if key.is_limited}

    def __len__(self) -> int:
        """Return the number of keys with limits."""
        return len(self._of)

    def of(self, sender: Sender) -> Quota | None:
        """Return the quota of a sender's key, or None if it has no limits."""
        return None if sender.key is None else self._of.get(sender.key.tenant)

    def begin(self, sender: Sender) -> Quota | None:
        """Begin a request; return what its end is told, if anything. Raises `ApiError` 429."""
        quota = self.of(sender)
        refusal = None if quota is None else quota.begin(self._clock())
        if refusal is not None:
            raise refusal.error()
        return quota

    def count(self, sender: Sender) -> None:
        """Count a request that is a part of one under way. Raises `ApiError` 429."""
        quota = self.of(sender)
        refusal = None if quota is None else quota.count(self._clock())
        if refusal is not None:
            raise refusal.error()

    def spend(self, sender: Sender, tokens: int) -> None:
        """Count tokens of a sender's key."""
        if (quota := self.of(sender)) is not None:
            quota.spend(tokens, self._clock())

    def headers(self, sender: Sender) -> dict[str, str]:
        """Return the headers of an answer that tell what is left."""
        quota = self.of(sender)
        return {} if quota is None else quota.headers(self._clock())
