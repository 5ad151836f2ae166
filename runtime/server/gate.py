"""How many chat completions may be under way at once, and which are."""

import asyncio
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
        self._tasks: set[asyncio.Task[object]] = set()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place for the task that runs this; raises `ApiError` 429 if there is none."""
        if len(self._tasks) >= self._capacity:
            raise ApiError(
                429,
                f"{self._capacity} requests are in flight, which is all that this server takes.",
                code="too_many_requests",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._in_flight.set(len(self._tasks))
        try:
            yield
        finally:
            self._tasks.discard(task)
            self._in_flight.set(len(self._tasks))

    def __len__(self) -> int:
        """How many requests are under way."""
        return len(self._tasks)

    def cancel_all(self) -> None:
        """Break off every request that is under way."""
        for task in self._tasks:
            task.cancel()
