"""The durations of steps, which the cost model learns and a calibration samples."""

from collections import deque

from vllm.v1.core.sched.output import SchedulerOutput

from caesura.intercept.kv.costs import CostTracker
from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.paused.chunking import Chunking
from caesura.scheduler.vllm.records.recorder import Recorder

MAX_SAMPLES = 4096


class StepCosts:
    """Times the steps of one scheduler from `scheduled` to `ended`; several may be in flight."""

    def __init__(
        self,
        port: EngineState,
        costs: CostTracker,
        chunking: Chunking,
        recorder: Recorder,
    ) -> None:
        self._port = port
        self._costs = costs
        self._chunking = chunking
        self._recorder = recorder
        self._in_flight: deque[tuple[float, int, int]] = deque()
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
            self._in_flight.append((began, total, work.context_tokens))
        self._recorder.scheduled(output, work, recomputed, self._chunking.most_tokens)

    def ended(self, output: SchedulerOutput, now: float) -> float:
        """Learn and return the seconds of the oldest step in flight, which ended at `now`.

        A step without tokens takes 0 seconds.
        """
        if not output.total_num_scheduled_tokens or not self._in_flight:
            return 0.0
        began, tokens, context = self._in_flight.popleft()
        seconds = now - max(began, self._last_end)
        self._last_end = now
        self._costs.observe_step(tokens, context, seconds)
        self.samples.append((tokens, context, seconds))
        self._recorder.computed(seconds, len(self._in_flight), now)
        return seconds
