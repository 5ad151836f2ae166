"""Records: why each pause was handled as it was, what that cost, and what every step was made of.

A pause's record holds the inputs of its decisions, the price of each alternative, what was done,
and in hindsight the truth and the regret. Steps are recorded in columns, many to a record. All of
it leaves the engine with the connector's statistics (`swap.metrics`). Steps also teach the cost
model what they cost.
"""

from collections import deque
from typing import Any

from vllm.v1.request import Request, RequestStatus

from caesura.intercept.cost import CostTracker
from caesura.intercept.events import ResumeReport
from caesura.intercept.view import PausedKV, Prices, StepView
from caesura.intercept.waste import discard_price, prices, swap_price, waste_preserve
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.recompute import Recomputation
from caesura.scheduler.vllm.swap.planner import SwapPlanner

STEPS_PER_RECORD = 64

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
)


class Ledger:
    """Writes records into `outbox`; None: nobody reads them, and only the costs are learned."""

    def __init__(self, scheduler: Any, costs: CostTracker, outbox: list[dict[str, Any]] | None):
        self._scheduler = scheduler
        self._costs = costs
        self._outbox = outbox
        self._steps: dict[str, list[float]] = {column: [] for column in COLUMNS}
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self.samples: deque[tuple[int, int, float]] = deque(maxlen=MOST_SAMPLES)
        """The last steps as (query tokens, tokens of context, seconds), for calibration."""
        self._last_end = 0.0

    # -- pauses ----------------------------------------------------------------------------------

    def opened(self, holding: Holding, view: PausedKV, step: StepView) -> None:
        """Write down what was known when the pause began."""
        if self._outbox is not None:
            segment = _segment(holding.life)
            began = self._scheduler._wall()
            holding.opening = (view, step, prices(view, step), began, segment)

    def closed(self, holding: Holding, report: ResumeReport | None, now: float) -> None:
        """Write down what came of it; no `report`: it never came back."""
        if self._outbox is None or holding.opening is None:
            return
        view, step, price, began, segment = holding.opening
        lasted = (holding.returned_at if holding.returned else now) - holding.since
        recomputed = report.context_tokens - report.cached_tokens if report is not None else 0
        hindsight = Prices(
            preserve=waste_preserve(lasted, view.resident),
            discard=discard_price(view, step),
            swap=swap_price(view, step),
        )
        actual = holding.held_block_seconds
        if recomputed and view.resident:
            share = min(1.0, recomputed / max(1, view.context_tokens))
            actual += hindsight.discard * share
        best = min(hindsight.preserve, hindsight.discard, hindsight.swap)
        self._outbox.append(
            {
                "kind": "pause",
                "request": holding.key,
                **segment,
                "tool": holding.tool,
                "at": began,
                "context_tokens": holding.context_tokens,
                "blocks": view.resident,
                "predicted_seconds": view.remaining,
                "prices": _plain(price),
                "decisions": [
                    [round(at - holding.since, 6), action, blocks]
                    for at, action, blocks in holding.events
                ],
                "outcome": _outcome(holding, report),
                "handling": report.handling if report is not None else "none",
                "pause_seconds": lasted,
                "queue_seconds": report.queue_seconds if report is not None else 0.0,
                "loaded_tokens": report.loaded_tokens if report is not None else 0,
                "recomputed_tokens": recomputed,
                "cost": actual,
                "hindsight": _plain(hindsight),
                "regret": max(0.0, actual - best),
            }
        )

    def ended_session(self, request: Request, life: Life) -> None:
        """Write down that a session is over, and its last segment."""
        if self._outbox is None:
            return
        self._outbox.append(
            {
                "kind": "session",
                "request": request.request_id,
                **_segment(life),
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
        scheduler = self._scheduler
        if not output.total_num_scheduled_tokens:
            return
        decode = recompute = context = 0
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = scheduler.requests[request_id]
            computed = request.num_computed_tokens
            context += computed
            if computed - tokens >= request.num_prompt_tokens:
                decode += tokens
            else:
                recompute += recomputation.tokens_in(request_id, computed - tokens, tokens)
        total = output.total_num_scheduled_tokens
        self._in_flight.append((began, total, context))
        if self._outbox is None:
            return
        pool = scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        holdings = scheduler._keeper.holdings.values()
        paused = sum(holding.resident for holding in holdings)
        traffic = planner.traffic if planner is not None else None
        row = (
            self._scheduler._wall(),
            0.0,
            len(output.num_scheduled_tokens),
            len(holdings),
            decode,
            total - decode - recompute,
            recompute,
            traffic.budget if traffic is not None else 0,
            traffic.saved if traffic is not None else 0,
            traffic.loaded if traffic is not None else 0,
            pool.num_gpu_blocks - 1 - free - paused,
            paused,
            free,
        )
        for column, value in zip(self._steps.values(), row, strict=True):
            column.append(value)

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
        if done >= STEPS_PER_RECORD or not self._scheduler.running:
            self._send(done)

    def _send(self, done: int) -> None:
        """Send off the steps that are over."""
        assert self._outbox is not None
        columns = self._steps.items()
        self._outbox.append({"kind": "steps", **{name: rows[:done] for name, rows in columns}})
        self._steps = {name: rows[done:] for name, rows in columns}


def _segment(life: Life) -> dict[str, Any]:
    """Name the session, when it came, and what its last segment was given and has decoded."""
    return {
        "session": life.session,
        "arrival": life.arrival,
        "given_tokens": life.given_tokens,
        "decoded_tokens": life.decoded_tokens,
    }


def _outcome(holding: Holding, report: ResumeReport | None) -> str:
    if report is not None:
        return "resumed"
    return "followed" if holding.follow_up is not None else "ended"


def _plain(price: Prices) -> dict[str, float | None]:
    """Return prices as JSON can hold them: no alternative is null."""
    swap = price.swap if price.swap != float("inf") else None
    return {"preserve": price.preserve, "discard": price.discard, "swap": swap}
