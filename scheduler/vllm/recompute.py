"""Computing in chunks that fit beside the running batch (InferCept, section 4.2).

Beyond the point at which the device is saturated a step takes longer with every query token, and
everybody who is decoding waits for it. So while somebody decodes, a step takes no more than that:
always, if the saturation was measured or a number is set, and in any case while KV that was
discarded is recomputed.
"""

from collections.abc import Mapping
from typing import Any

from vllm.v1.request import RequestStatus

from caesura.intercept.cost import SMALLEST_CHUNK, CostTracker
from caesura.intercept.pause import Pause, State
from caesura.scheduler.vllm.holding import Holding


class Recomputation:
    """Which requests recompute, how far, and how large a step may be meanwhile."""

    def __init__(self, scheduler: Any, costs: CostTracker, chunk: int | None) -> None:
        """`chunk`: most query tokens beside decodes; 0: what saturates; None: vLLM's."""
        self._scheduler = scheduler
        self._costs = costs
        self._chunk = chunk
        self._frontiers: dict[str, int] = {}

    def begin(self, request_id: str, computed: int, frontier: int) -> None:
        """A request runs again, from `computed` on; it had computed up to `frontier` before."""
        if computed < frontier:
            self._frontiers[request_id] = frontier

    def end(self, request_id: str) -> None:
        """It paused again, or has ended."""
        self._frontiers.pop(request_id, None)

    def tokens_in(self, request_id: str, start: int, scheduled: int) -> int:
        """Return how many of the scheduled tokens had been computed before."""
        frontier = self._frontiers.get(request_id)
        if frontier is None:
            return 0
        again = min(start + scheduled, frontier) - start
        if start + scheduled >= frontier:
            del self._frontiers[request_id]
        return max(0, again)

    def limit(self, most: int, holdings: Mapping[str, Holding]) -> int:
        """Return how many query tokens the coming step may take, `most` if nobody is held up."""
        recomputes = bool(self._frontiers) or self._about_to_begin(holdings)
        if self._chunk is None and not recomputes:
            return most
        running = self._scheduler.running
        decoding = sum(request.num_tokens - request.num_computed_tokens <= 1 for request in running)
        if not decoding:
            return most
        if self._chunk and not recomputes:
            return min(most, max(self._chunk, decoding + SMALLEST_CHUNK))
        return min(most, decoding + self._costs.model.chunk_tokens(decoding))

    def _about_to_begin(self, holdings: Mapping[str, Holding]) -> bool:
        return any(
            holding.returned and _recomputes(holding.pause, holding)
            for holding in holdings.values()
        )


def _recomputes(pause: Pause | None, holding: Holding) -> bool:
    if pause is None or pause.held or pause.state is not State.RESUMING:
        return False
    return holding.missing > 0 and holding.request.status != RequestStatus.WAITING_FOR_REMOTE_KVS
