"""The steps of one scheduler: how many tokens the next one may take, and how long each one took.

While any request decodes, `StepTokens` limits the query tokens of a step, so that discarded KV is
recomputed in chunks beside the running batch (InferCept, section 4.2). The cost model learns the
durations, and a calibration samples them.
"""

from collections import deque

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.kv.costs import CostTracker
from caesura.intercept.kv.states import Pause, State
from caesura.intercept.kv.step_budget import StepTokens
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import computed_tokens
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import PausedKV, ServedRequests
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner


class Chunking:
    """Counts the tokens that requests recompute, and limits the steps meanwhile."""

    def __init__(
        self,
        port: EngineState,
        costs: CostTracker,
        paused_kvs: PausedKVs,
        served: ServedRequests,
        rule: StepTokens,
        measured: bool,
    ) -> None:
        """Create it; `measured` means that the cost model was measured on this engine."""
        self._port = port
        self._paused_kvs = paused_kvs
        self._served = served
        self._costs = costs
        self._rule = rule
        self.measured = measured
        self.most_tokens = 0
        """The limit of the latest step, in query tokens."""

    def tokens_in(self, request_id: str, start: int, scheduled: int) -> int:
        """Return how many of the scheduled tokens had been computed before."""
        served = self._served.recomputing.get(request_id)
        if served is None:
            return 0
        again = min(start + scheduled, served.frontier) - start
        if start + scheduled >= served.frontier:
            self._served.stop_recomputing(served)
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
        self._paused_kvs.freshen(kv)
        return request.num_tokens - sum(self._paused_kvs.blocks.tokens_of(kv))

    def _any_recomputes(self) -> bool:
        """Return whether discarded KV is being recomputed, or will be in the next step."""
        return bool(self._served.recomputing) or self._about_to_begin()

    def _about_to_begin(self) -> bool:
        for kv in self._paused_kvs.returned.values():
            self._paused_kvs.freshen(kv)
            if _needs_recompute(kv.pause, kv):
                return True
        return False


def _needs_recompute(pause: Pause | None, kv: PausedKV) -> bool:
    """Return whether a resuming request lacks KV that is not being loaded."""
    if pause is None or pause.held or pause.state is not State.RESUMING:
        return False
    return kv.missing > 0 and not kv.loading


MAX_SAMPLES = 4096


class StepCosts:
    """Times the steps of one scheduler from `scheduled` to `ended`; several may be in flight."""

    def __init__(
        self,
        port: EngineState,
        costs: CostTracker,
        chunking: Chunking,
        recorder: Recorder,
        planner: SwapPlanner | None,
    ) -> None:
        """Create it; `planner` is None without a link to the host."""
        self._port = port
        self._costs = costs
        self._chunking = chunking
        self._recorder = recorder
        self._planner = planner
        self._in_flight: deque[tuple[float, int, int, float | None]] = deque()
        self._last_end = 0.0
        self.samples: deque[tuple[int, int, float]] = deque(maxlen=MAX_SAMPLES)
        """The last steps as (query tokens, context tokens, seconds)."""

    @property
    def in_flight(self) -> int:
        """Return how many steps were scheduled and have not ended."""
        return len(self._in_flight)

    def scheduled(self, output: SchedulerOutput, began: float) -> None:
        """Record a step that was scheduled at `began`, in seconds."""
        work = self._port.work_of(output)
        recomputed = sum(self._chunking.tokens_in(*chunk) for chunk in work.prefills)
        if output.total_num_scheduled_tokens:
            total = output.total_num_scheduled_tokens
            self._in_flight.append((began, total, work.context_tokens, self._saved_tokens()))
        self._recorder.scheduled(output, work, recomputed, self._chunking.most_tokens)

    def ended(self, output: SchedulerOutput, now: float) -> float:
        """Learn and return the seconds of the oldest step in flight, which ended at `now`.

        A step without tokens takes 0 seconds.
        """
        if not output.total_num_scheduled_tokens or not self._in_flight:
            return 0.0
        began, tokens, context, saved = self._in_flight.popleft()
        seconds = now - max(began, self._last_end)
        self._last_end = now
        if saved is not None:
            self._costs.observe_step(tokens, context, seconds, saved)
        self.samples.append((tokens, context, seconds))
        self._recorder.computed(seconds, len(self._in_flight), now)
        return seconds

    def _saved_tokens(self) -> float | None:
        """Return the tokens that the scheduled step copies to the host, 0 without copies.

        It is None where loads are under way: the step waits for those that join it, and that is
        the price of the load and not of a copy beside it.
        """
        planner = self._planner
        if planner is None:
            return 0.0
        if planner.traffic.loaded or planner.loads.busy:
            return None
        return self._port.groups.tokens(planner.traffic.saved, self._port.attention_tokens)
