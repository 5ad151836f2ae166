"""Holdback: it removes requests from vLLM's queues for one `schedule()` call.

vLLM admits from the front of its queues and stops at the first request that does not fit. So
holdback sorts the queues by rank. It removes requests that do not fit but would be tried before one
that does, and requests that admission refuses. After the step, all return to their places.
"""

from vllm.v1.request import Request

from caesura.scheduler.vllm.engine_state import EngineState, Queue
from caesura.scheduler.vllm.engine_state.requests import waits_for_tool


class Holdback:
    """Chooses which of one scheduler's waiting requests are held back in a step."""

    def __init__(self, port: EngineState) -> None:
        self._port = port

    def leave(self, ready: list[Request], chosen: list[Request], refused: set[str]) -> None:
        """Hold back, for the next step, the requests that vLLM must not try before the `chosen`.

        Requests ranked after the chosen ones stay: vLLM tries them too, and stops at the first
        that does not fit. So a wrong prediction about them has no effect. vLLM never tries the
        `refused` requests.
        """
        places = {request.request_id: place for place, request in enumerate(ready)}
        among = {request.request_id for request in chosen}
        last = places[chosen[-1].request_id] if chosen else -1
        # vLLM tries all requests that hold KV before the others, and stops at a misfit.
        holding_kv, others = self._port.queues()
        ahead = min((places.get(one.request_id, len(ready)) for one in others), default=len(ready))

        def stays(request: Request, queue: Queue) -> bool:
            request_id = request.request_id
            if request_id in among or request_id not in places:
                return not waits_for_tool(request)
            if request_id in refused or places[request_id] < last:
                return False
            return queue is others or places[request_id] < ahead

        for queue in (holding_kv, others):
            held = [request for request in queue if not stays(request, queue)]
            self._port.hold_back(queue, held, places)
