"""Holding requests back: what is not to be tried in a step is not in vLLM's queues meanwhile.

vLLM admits from the front of its queues and stops at the first request that does not fit. So the
queues are put into the order of the ranking. Requests that would be tried before one that fits, or
that admission refuses, are taken out until the step is made. Then all go back to their places.
"""

from vllm.v1.request import Request

from caesura.scheduler.vllm.engine_state import EngineState, Queue
from caesura.scheduler.vllm.engine_state.requests import waits_for_tool


class Holdback:
    """Chooses which of one scheduler's waiting requests are held back in a step."""

    def __init__(self, port: EngineState) -> None:
        self._port = port

    def leave(self, ready: list[Request], chosen: list[Request], refused: set[str]) -> None:
        """Hold back, for the coming step, what vLLM must not try before the `chosen`.

        The other requests stay behind the chosen ones: vLLM tries them too, and stops at the first
        that does not fit. So nothing depends on what was found out about them. `refused` are not
        to be tried at all.
        """
        places = {request.request_id: place for place, request in enumerate(ready)}
        among = {request.request_id for request in chosen}
        last = places[chosen[-1].request_id] if chosen else -1
        # vLLM tries all that hold KV before all others, and stops at a misfit among them.
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
