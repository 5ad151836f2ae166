"""Computing in chunks that fit beside the running batch (InferCept, section 4.2).

Beyond the point at which the device is saturated a step takes longer with every query token, and
all requests that decode wait for it. So while any decodes, a step takes only so many. What
that is, is set; or it follows from the saturation, if that was measured; else only KV that was
discarded is held to what is believed of the saturation while it is recomputed.
"""

from collections.abc import Mapping

from caesura.intercept.kv.costs import SMALLEST_CHUNK, CostTracker
from caesura.intercept.kv.states import Pause, State
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.paused.paused_kv import PausedKV
from caesura.scheduler.vllm.paused.views import PolicyViews

SATURATIONS = 2
"""So often the saturation fits into a step beside decodes.

At the saturation itself neither the memory nor the arithmetic of a device is fully used: there a
step computes five sixths of the tokens per second that long ones do, and at twice that hardly less.
"""


class Chunking:
    """Which requests recompute, how far, and how large a step may be meanwhile."""

    def __init__(
        self,
        port: EngineState,
        costs: CostTracker,
        views: PolicyViews,
        paused_kvs: Mapping[str, PausedKV],
        chunk: int | str,
        measured: bool,
    ) -> None:
        """`chunk` is the setting; `measured`: the cost model is this engine's, not a guess.

        A guess that is too low would make every prefill slower than vLLM's.
        """
        self._port = port
        self._views = views
        self._paused_kvs = paused_kvs
        self._costs = costs
        self._chunk = chunk
        self.measured = measured
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

    def limit(self) -> int:
        """Return how many query tokens the coming step may take: all of vLLM's if none decodes."""
        most, chunk = self._port.step_tokens, self._chunk_tokens()
        if chunk is None or chunk >= most:
            return most
        decoding = self._port.decoding()
        return min(most, max(chunk, decoding + SMALLEST_CHUNK)) if decoding else most

    def _chunk_tokens(self) -> int | None:
        if isinstance(self._chunk, int):
            return self._chunk
        if self._chunk == "vllm":
            return None
        saturation = self._costs.model.saturation
        if self.measured:
            return SATURATIONS * saturation
        recomputes = bool(self._frontiers) or self._about_to_begin()
        return saturation if recomputes else None

    def _about_to_begin(self) -> bool:
        for kv in self._paused_kvs.values():
            if kv.returned:
                self._views.freshen(kv)
                if _recomputes(kv.pause, kv):
                    return True
        return False


def _recomputes(pause: Pause | None, kv: PausedKV) -> bool:
    if pause is None or pause.held or pause.state is not State.RESUMING:
        return False
    return kv.missing > 0 and not kv.loading
