"""Chunked recomputation beside the running batch (InferCept, section 4.2).

While any request decodes, `StepTokens` limits the query tokens of a step.
"""

from vllm.v1.request import Request

from caesura.intercept.kv.costs import CostTracker
from caesura.intercept.kv.states import Pause, State
from caesura.intercept.kv.step_budget import StepTokens
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.engine_state.requests import computed_tokens
from caesura.scheduler.vllm.paused.paused_kv import PausedKV
from caesura.scheduler.vllm.paused.paused_kvs import PausedKVs
from caesura.scheduler.vllm.paused.views import PolicyViews


class Chunking:
    """Tracks which requests recompute and up to which token, and limits the steps meanwhile."""

    def __init__(
        self,
        port: EngineState,
        costs: CostTracker,
        views: PolicyViews,
        paused_kvs: PausedKVs,
        rule: StepTokens,
        measured: bool,
    ) -> None:
        """Create it; `measured` means that the cost model was measured on this engine."""
        self._port = port
        self._views = views
        self._paused_kvs = paused_kvs
        self._costs = costs
        self._rule = rule
        self.measured = measured
        self._frontiers: dict[str, int] = {}
        self.most_tokens = 0
        """The limit of the latest step, in query tokens."""

    def begin(self, request_id: str, computed: int, frontier: int) -> None:
        """Track a request that resumes with `computed` of the `frontier` tokens it had before."""
        if computed < frontier:
            self._frontiers[request_id] = frontier

    def end(self, request_id: str) -> None:
        """Stop tracking a request that paused again or has ended."""
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
        """Return the maximum query tokens of the next step: vLLM's limit if no request decodes."""
        self.most_tokens = self._rule.limit(
            self._port.step_tokens,
            self._costs.model.saturation,
            self.measured,
            self._any_recomputes,
            self._port.decoding,
            self.waiting_tokens,
        )
        return self.most_tokens

    def waiting_tokens(self) -> int:
        """Return the tokens to compute for all requests that do not decode yet."""
        running = (one.num_tokens - computed_tokens(one) for one in self._port.running())
        queued = (self._lacking(one) for one in self._port.ready())
        return sum(tokens for tokens in running if tokens > 1) + sum(queued)

    def _lacking(self, request: Request) -> int:
        """Return the tokens to compute before a queued request decodes; hits are not known yet."""
        kv, computed = self._paused_kvs.get(request.request_id), computed_tokens(request)
        if computed or kv is None:
            return request.num_tokens - computed
        self._views.freshen(kv)
        missing = kv.missing * self._port.block_size
        return missing + max(1, request.num_tokens - kv.context_tokens)

    def _any_recomputes(self) -> bool:
        """Return whether discarded KV is being recomputed, or will be in the next step."""
        return bool(self._frontiers) or self._about_to_begin()

    def _about_to_begin(self) -> bool:
        for kv in self._paused_kvs.returned.values():
            self._views.freshen(kv)
            if _needs_recompute(kv.pause, kv):
                return True
        return False


def _needs_recompute(pause: Pause | None, kv: PausedKV) -> bool:
    """Return whether a resuming request lacks KV that is not being loaded."""
    if pause is None or pause.held or pause.state is not State.RESUMING:
        return False
    return kv.missing > 0 and not kv.loading
