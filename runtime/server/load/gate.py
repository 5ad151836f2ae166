"""The bound on concurrent requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.quota import Quotas
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.queue_bound import QueueBound


class Gate:
    """Admits up to `capacity` requests at once, and refuses more with a time to retry.

    It also refuses requests that would wait in the engine's queue for too long, and keeps each key
    within its own limits.
    """

    def __init__(
        self,
        capacity: int,
        in_flight: Gauge,
        quotas: Quotas,
        check: Callable[[], None] = lambda: None,
        queue: QueueBound | None = None,
    ) -> None:
        """Create it; `check` raises `ApiError` while the server takes no new work at all.

        `queue` predicts how long requests wait, and says how long they may.
        """
        self._queue = queue or QueueBound()
        self._check = check
        self._capacity = capacity
        self._in_flight = in_flight
        self.quotas = quotas
        """What is left to the keys with limits."""
        self._count = 0

    @contextmanager
    def enter(self, sender: Sender) -> Iterator[None]:
        """Hold one place while the context lasts; raise `ApiError` 429 if there is none.

        There is none if all are taken, if the request would wait for too long, or if a limit of its
        sender's key is reached. Raises `ApiError` 503 while the server takes no new work.
        """
        self._check()
        refused = self._queue.refusal(self._count, self._capacity)
        if refused is not None:
            again = {"Retry-After": str(refused.retry_seconds)}
            raise ApiError(429, refused.message, code=refused.code, headers=again)
        quota = self.quotas.begin(sender) if self.quotas else None
        self._queue.admitted()
        self._count += 1
        self._in_flight.set(self._count)
        try:
            yield
        finally:
            if quota is not None:
                quota.end()
            self._count -= 1
            self._in_flight.set(self._count)

    def __len__(self) -> int:
        """Return the number of requests under way."""
        return self._count
