"""How many chat completions may be under way at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from caesura.runtime.server.errors import ApiError

RETRY_SECONDS = 1


class Gate:
    """Lets up to `capacity` requests in; the ones over that are told to come back."""

    def __init__(self, capacity: int, in_flight: Gauge) -> None:
        self._capacity = capacity
        self._in_flight = in_flight
        self._count = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place; raises `ApiError` 429 if there is none."""
        if self._count >= self._capacity:
            raise ApiError(
                429,
                f"{self._capacity} requests are in flight, which is all that this server takes.",
                code="too_many_requests",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        self._count += 1
        self._in_flight.set(self._count)
        try:
            yield
        finally:
            self._count -= 1
            self._in_flight.set(self._count)

    def __len__(self) -> int:
        """How many requests are under way."""
        return self._count
