"""Records: why each pause was handled as it was, what that cost, and what every step was made of.

What is known when a pause begins, and what came of it, is written down by `reckoning`; where each
request stands by `lanes`. Steps are recorded in columns, many to a record. All of it leaves the
engine with the connector's statistics (`swap.metrics`). Steps also teach the cost model what they
cost.
"""

from collections import deque
from typing import Any

from vllm.v1.request import Request, RequestStatus

from caesura.intercept.cost import CostTracker
from caesura.intercept.events import ResumeReport
from caesura.intercept.view import PausedKV, StepView
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.lanes import Lanes
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.reckoning import open_account, opening_record, pause_record, segment
from caesura.scheduler.vllm.recompute import Recomputation
from caesura.scheduler.vllm.swap.planner import SwapPlanner

STEPS_PER_RECORD = 64

SECONDS_PER_RECORD = 0.5
"""Nothing stays longer while steps are made: somebody may be watching."""

MOST_SAMPLES = 4096

COLUMNS = (
    "at",
    "seconds",
    "running",
    "paused",
    "decode_tokens",
    "prefill_tokens",
    "recompute_tokens",
    "budget_blocks",
    "saved_blocks",
    "loaded_blocks",
    "running_blocks",
    "paused_blocks",
    "free_blocks",
    "waiting",
    "cached_blocks",
    "host_blocks",
)


class Ledger:
    """Writes records into `outbox`; None: nobody reads them, and only the costs are learned."""

    def __init__(self, scheduler: Any, costs: CostTracker, outbox: list[dict[str, Any]] | None):
        self._scheduler = scheduler
        self._costs = costs
        self._outbox = outbox
        self._lanes = Lanes(scheduler)
        self._steps: dict[str, list[float]] = {column: [] for column in COLUMNS}
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self.samples: deque[tuple[int, int, float]] = deque(maxlen=MOST_SAMPLES)
        """The last steps as (query tokens, tokens of context, seconds), for calibration."""
        self._last_end = self._sent_at = 0.0

    def write_into(self, outbox: list[dict[str, Any]]) -> None:
        """Have records made, from the first step on, for somebody in this very process."""
        self._outbox = outbox

    @property
    def lanes(self) -> Lanes | None:
        """Where each request stands; None: nobody reads records."""
        return self._lanes if self._outbox is not None else None

    @property
    def pending(self) -> bool:
        """Whether something has happened, with no step under way that would take it along."""
        return self._outbox is not None and self._lanes.pending

    # -- pauses ----------------------------------------------------------------------------------

    def opened(self, holding: Holding, view: PausedKV, step: StepView) -> None:
        """Write down what was known when the pause began."""
        if self._outbox is None:
            return
        opening = holding.opening = open_account(holding, view, step, self._lanes.now())
        self._lanes.paused(holding, opening.at)
        handling = self._scheduler._keeper.handling.name
        self._outbox.append(opening_record(holding, opening, handling))

    def closed(self, holding: Holding, report: ResumeReport | None, now: float) -> None:
        """Write down what came of it; no `report`: it never came back."""
        if self._outbox is None or holding.opening is None:
            return
        self._outbox.append(pause_record(holding, report, now))
        self._lanes.closed(holding)

    def ended_session(self, request: Request, life: Life) -> None:
        """Write down that a session is over, and its last segment."""
        if self._outbox is None:
            return
        self._outbox.append(
            {
                "kind": "session",
                "request": request.request_id,
                **segment(life),
                "at": self._scheduler._wall(),
                "calls": life.calls,
                "most_tokens": request.max_tokens,
                "outcome": RequestStatus.get_finished_reason(request.status).name.lower(),
            }
        )

    # -- steps -----------------------------------------------------------------------------------

    def scheduled(
        self, output: Any, recomputation: Recomputation, planner: SwapPlanner | None, began: float
    ) -> None:
        """Write down what a step is made of."""
        if self._outbox is not None:
            self._lanes.stepped(output)
        scheduler, total = self._scheduler, output.total_num_scheduled_tokens
        if not total:
            self._send_lanes()
            return
        decode = recompute = context = partial = 0
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = scheduler.requests[request_id]
            computed = request.num_computed_tokens
            context += computed
            partial += computed % scheduler.block_size > 0
            if computed - tokens >= request.num_prompt_tokens:
                decode += tokens
            else:
                recompute += recomputation.tokens_in(request_id, computed - tokens, tokens)
        self._in_flight.append((began, total, context))
        if self._outbox is None:
            return
        tokens_by_purpose = (decode, total - decode - recompute, recompute)
        row = self._row(len(output.num_scheduled_tokens), tokens_by_purpose, planner, partial)
        for column, value in zip(self._steps.values(), row, strict=True):
            column.append(value)

    def _row(
        self, running: int, tokens: tuple[int, int, int], planner: SwapPlanner | None, partial: int
    ) -> tuple[float, ...]:
        pool = self._scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        holdings = self._scheduler._keeper.holdings.values()
        paused = sum(holding.resident for holding in holdings)
        traffic = planner.traffic if planner is not None else None
        return (
            self._scheduler._wall(),
            0.0,
            running,
            len(holdings),
            *tokens,
            traffic.budget if traffic is not None else 0,
            traffic.saved if traffic is not None else 0,
            traffic.loaded if traffic is not None else 0,
            pool.num_gpu_blocks - 1 - free - paused,
            paused,
            free,
            self._lanes.waiting,
            self._cached(free, partial),
            planner.store.used if planner is not None else 0,
        )

    def _cached(self, free: int, partial: int) -> int:
        """Estimate how many free blocks the prefix cache can still find.

        It knows full blocks, free or not. Of those in use all are full but the last ones of
        requests (`partial` of those that run), and what loads have still to fill.
        """
        pool, keeper = self._scheduler.kv_cache_manager.block_pool, self._scheduler._keeper
        for holding in keeper.holdings.values():
            in_place = holding.detached is None and holding.present > 0
            partial += in_place and holding.context_tokens % self._scheduler.block_size > 0
        if keeper.planner is not None:
            partial += keeper.planner.loads.unfilled_blocks
        in_use = pool.num_gpu_blocks - 1 - free - partial
        return max(0, min(free, len(pool.cached_block_hash_to_block) - in_use))

    def ended(self, output: Any, now: float) -> None:
        """A step's tokens are there: learn what it cost."""
        if not output.total_num_scheduled_tokens or not self._in_flight:
            return
        began, tokens, context = self._in_flight.popleft()
        seconds = now - max(began, self._last_end)
        self._last_end = now
        self._costs.observe_step(tokens, context, seconds)
        self.samples.append((tokens, context, seconds))
        if self._outbox is None:
            return
        durations = self._steps["seconds"]
        durations[len(durations) - 1 - len(self._in_flight)] = seconds
        done = len(durations) - len(self._in_flight)
        due = now - self._sent_at >= SECONDS_PER_RECORD or not self._scheduler.running
        if due or done >= STEPS_PER_RECORD:
            self._sent_at = now
            self._send(done)

    def flush(self) -> None:
        """Send off all that there is, as at the end of a run."""
        done = len(self._steps["at"]) - len(self._in_flight)
        if self._outbox is not None and done > 0:
            self._send(done)
        self._send_lanes()

    def _send(self, done: int) -> None:
        """Send off the steps that are over, and what has happened meanwhile."""
        assert self._outbox is not None
        self._send_lanes()
        columns = self._steps.items()
        self._outbox.append({"kind": "steps", **{name: rows[:done] for name, rows in columns}})
        self._steps = {name: rows[done:] for name, rows in columns}

    def _send_lanes(self) -> None:
        if self._outbox is not None:
            self._outbox += self._lanes.take()
