"""Paused requests outside of vLLM's queues, and their places there when they return.

A request returns to the place that it would have if it had stayed in its queue. Requests that hold
KV were added at the back of their queue. Those that lost it went to the front of the other one.
"""

from collections.abc import Collection
from typing import Any

from vllm.v1.request import Request


class Parked:
    """The paused requests of one scheduler that are in none of its queues."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._places: dict[str, int] = {}
        """Of requests that were parked: above 0 with KV, in the order of the queue."""
        self._last = 0
        self._first = 0

    def __len__(self) -> int:
        return len(self._requests)

    def requests(self) -> Collection[Request]:
        """Return the requests."""
        return self._requests.values()

    def take(self, request: Request, holding_kv: Any) -> None:
        """Take a request out of the queue of requests with KV, if it is there."""
        for index in reversed(range(len(holding_kv))):  # it has just come to the back
            if holding_kv[index] is request:
                del holding_kv[index]
                self._last += 1
                self._requests[request.request_id] = request
                self._places[request.request_id] = self._last
                return

    def lost_kv(self, request: Request) -> bool:
        """Move a request to the front of those without KV; return whether it is here."""
        if request.request_id not in self._requests:
            return False
        self._first -= 1
        self._places[request.request_id] = self._first
        return True

    def forget(self, request_id: str) -> None:
        """Forget a request that is about to be freed."""
        self._requests.pop(request_id, None)
        self._places.pop(request_id, None)

    def put_back(self, request: Request, holding_kv: Any, others: Any) -> None:
        """Put a request, if it is here, into its queue of the two."""
        if self._requests.pop(request.request_id, None) is None:
            return
        place = self._places[request.request_id]
        queue = holding_kv if place > 0 else others
        for index, one in enumerate(queue):
            other = self._places.get(one.request_id)
            # Requests that were never parked came to the other queue's back.
            if other > place if other is not None else place < 0:
                queue.insert(index, request)
                return
        queue.append(request)
