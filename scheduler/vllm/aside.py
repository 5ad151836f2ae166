"""Standing aside: whoever is not to be tried in a step is not in vLLM's queues while it is made.

vLLM admits from the front of its queues and stops at the first request that does not fit. So the
queues are put into the order of the line, and those who would be tried before somebody who fits,
or whom admission refuses, stand aside until the step is made. Then all are put back where they
were.
"""

from collections.abc import Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class Aside:
    """Those of one scheduler's waiting requests that stand aside in a step."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._left: list[tuple[Any, list[Request], dict[int, int]]] = []

    def leave(self, ready: list[Request], chosen: list[Request], refused: set[str]) -> None:
        """Take out of vLLM's queues, until `put_back`, whom it must not try before the `chosen`.

        The others stay behind them: vLLM tries them too, and stops at the first that does not fit,
        as ever. So nothing depends on what was found out about them. `refused` are not to be tried
        at all.
        """
        places = {request.request_id: place for place, request in enumerate(ready)}
        among = {request.request_id for request in chosen}
        last = places[chosen[-1].request_id] if chosen else -1
        scheduler = self._scheduler
        # vLLM tries all who hold KV before all others, and stops at a misfit among them.
        before_all, others = scheduler.kv_holding_waiting, scheduler.waiting
        ahead = min((places.get(one.request_id, len(ready)) for one in others), default=len(ready))

        def stays(request: Request, queue: Any) -> bool:
            request_id = request.request_id
            if request_id in among or request_id not in places:
                return not _waits_for_a_tool(request)
            if request_id in refused or places[request_id] < last:
                return False
            return queue is others or places[request_id] < ahead

        for queue in (before_all, others):
            left = [request for request in queue if not stays(request, queue)]
            self._left.append((queue, left, {id(one): at for at, one in enumerate(queue)}))
            self._reorder(queue, set(left), places)

    def leave_paused(self) -> None:
        """Take out those that wait for a tool: vLLM would look at each of them in every step."""
        scheduler = self._scheduler
        if in_vllms_order(scheduler):
            return
        for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
            left = [request for request in queue if _waits_for_a_tool(request)]
            if not left:
                continue
            stay = (
                [one for one in queue if not _waits_for_a_tool(one)]
                if len(left) < len(queue)
                else []
            )
            places = {id(one): at for at, one in enumerate(queue)} if stay else {}
            self._left.append((queue, left, places))
            queue.clear()
            queue.extend(stay)

    def _reorder(self, queue: Any, left: set[Request], places: dict[str, int]) -> None:
        """Have vLLM try those who are ready in their order; who is blocked keeps his place."""
        if in_vllms_order(self._scheduler):
            queue.remove_requests(left)
            return
        stay = [request for request in queue if request not in left]
        ranked = iter(
            sorted(
                (one for one in stay if one.request_id in places),
                key=lambda one: places[one.request_id],
            )
        )
        queue.clear()
        queue.extend(next(ranked) if one.request_id in places else one for one in stay)

    def put_back(self) -> None:
        """Put those who were left out where they were, behind whom the step has preempted."""
        for queue, left, places in self._left:
            if not left or in_vllms_order(self._scheduler):
                for request in left:
                    queue.add_request(request)
                continue
            everybody = [*queue, *left]
            if len(everybody) > len(left):
                everybody.sort(key=lambda one: places.get(id(one), -1))
            queue.clear()
            queue.extend(everybody)
        self._left.clear()


def in_vllms_order(scheduler: Any) -> bool:
    """Whether vLLM was told to go by priorities: then nothing else ranks."""
    return bool(scheduler.policy == SchedulingPolicy.PRIORITY)


def _waits_for_a_tool(request: Request) -> bool:
    return request.status == RequestStatus.WAITING_FOR_STREAMING_REQ


def waiting(scheduler: Any) -> Iterator[Request]:
    """Return everybody in vLLM's queues, in the order in which it will try them."""
    for queue in (scheduler.kv_holding_waiting, scheduler.waiting):
        yield from tuple(queue)
