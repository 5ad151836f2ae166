"""Records: why each pause was handled as it was, what that cost, and what every step was made of.

What is known when a pause begins, and what came of it, is written down by `reckoning`; where each
request stands by `lanes`. Steps are recorded in columns, many to a record. All of it leaves the
engine with the connector's statistics (`swap.metrics`).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.views import PausedKV, StepView
from caesura.scheduler.vllm.engine_state import EngineState, StepWork
from caesura.scheduler.vllm.engine_state.requests import outcome_of
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.lanes import Lanes
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.reckoning import open_account, opening_record, pause_record, segment
from caesura.scheduler.vllm.recorder import Recorder
from caesura.scheduler.vllm.swap.planner import SwapPlanner
from caesura.scheduler.vllm.waits import Lack

STEPS_PER_RECORD = 64

SECONDS_PER_RECORD = 0.5
"""Nothing stays longer while steps are made: somebody may be watching."""

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

Record = dict[str, Any]


class RecordWriter(Recorder):
    """Writes what happens into `outbox`, as records."""

    def __init__(
        self,
        port: EngineState,
        outbox: list[Record],
        holdings: Mapping[str, Holding],
        planner: SwapPlanner | None,
        wall: Callable[[], float],
    ) -> None:
        """`planner`: there is a link to the host; `wall` returns seconds of the wall clock."""
        self._port = port
        self._outbox = outbox
        self._out: list[Record] | deque[Record] = outbox
        self._holdings = holdings
        self._planner = planner
        self._wall = wall
        self._lanes = Lanes(port, planner, wall)
        self._steps: dict[str, list[float]] = {column: [] for column in COLUMNS}
        self._in_flight = 0
        self._sent_at = 0.0

    @property
    def pending(self) -> bool:
        return self._lanes.pending

    @property
    def lanes(self) -> Lanes:
        """Where each request stands."""
        return self._lanes

    # -- requests --------------------------------------------------------------------------------

    def arrived(self, request: Request, life: Life, followed: Holding | None) -> None:
        self._lanes.arrived(request, life, followed)

    def returned(self, request: Request) -> None:
        self._lanes.returned(request)

    def preempted(self, request: Request, computed: int) -> None:
        self._lanes.preempted(request, computed)

    def looked(self, lacks: list[Lack], stop: str) -> None:
        self._lanes.looked(lacks, stop)

    def ended(self, request_id: str) -> None:
        self._lanes.ended(request_id)

    def session_ended(self, request: Request, life: Life) -> None:
        self._out.append(
            {
                "kind": "session",
                "request": request.request_id,
                **segment(life),
                "at": self._wall(),
                "calls": life.calls,
                "most_tokens": request.max_tokens,
                "outcome": outcome_of(request),
            }
        )

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, holding: Holding, view: PausedKV, step: StepView, handling: str) -> None:
        opening = holding.opening = open_account(holding, view, step, self._lanes.now())
        self._lanes.paused(holding, opening.at)
        self._out.append(opening_record(holding, opening, handling))

    def kv_changed(self, holding: Holding) -> None:
        self._lanes.held(holding)

    def kv_lost(self) -> None:
        self._lanes.recheck()

    def closed(self, holding: Holding, report: ResumeReport | None, now: float) -> None:
        if holding.opening is None:
            return
        self._out.append(pause_record(holding, report, now))
        self._lanes.closed(holding)

    # -- steps -----------------------------------------------------------------------------------

    def scheduled(self, output: SchedulerOutput, work: StepWork, recomputed: int) -> None:
        self._lanes.stepped(output)
        total = output.total_num_scheduled_tokens
        if not total:
            self._send_lanes()
            return
        self._in_flight += 1
        purposes = (work.decode_tokens, total - work.decode_tokens - recomputed, recomputed)
        row = self._row(len(output.num_scheduled_tokens), purposes, work.partial_blocks)
        for column, value in zip(self._steps.values(), row, strict=True):
            column.append(value)

    def _row(self, running: int, tokens: tuple[int, int, int], partial: int) -> tuple[float, ...]:
        pool, planner = self._port.blocks, self._planner
        free = pool.free()
        holdings = self._holdings.values()
        paused = sum(holding.resident for holding in holdings)
        traffic = planner.traffic if planner is not None else None
        return (
            self._wall(),
            0.0,
            running,
            len(holdings),
            *tokens,
            traffic.budget if traffic is not None else 0,
            traffic.saved if traffic is not None else 0,
            traffic.loaded if traffic is not None else 0,
            pool.total - free - paused,
            paused,
            free,
            self._lanes.queued,
            self.cached_blocks(free, partial),
            planner.store.used if planner is not None else 0,
        )

    def cached_blocks(self, free: int, partial: int) -> int:
        """Estimate how many of the free blocks the prefix cache can still find.

        It knows full blocks, free or not. Of those in use all are full but the last ones of
        requests (`partial` of those that run), and what loads have still to fill.
        """
        for holding in self._holdings.values():
            in_place = holding.detached is None and holding.present > 0
            partial += in_place and holding.context_tokens % self._port.block_size > 0
        if self._planner is not None:
            partial += self._planner.loads.unfilled_blocks
        in_use = self._port.blocks.total - free - partial
        return max(0, min(free, self._port.blocks.hashed() - in_use))

    def computed(self, seconds: float, in_flight: int, now: float) -> None:
        self._in_flight = in_flight
        durations = self._steps["seconds"]
        done = len(durations) - in_flight
        durations[done - 1] = seconds
        due = now - self._sent_at >= SECONDS_PER_RECORD or not self._port.running()
        if due or done >= STEPS_PER_RECORD:
            self._sent_at = now
            self._send(done)

    def flush(self) -> None:
        done = len(self._steps["at"]) - self._in_flight
        if done > 0:
            self._send(done)
        self._send_lanes()

    def suspend(self) -> None:
        self.flush()
        self._out = deque(maxlen=0)

    def resume(self) -> None:
        self.flush()
        self._out = self._outbox

    def _send(self, done: int) -> None:
        """Send off the steps that are over, and what has happened meanwhile."""
        self._send_lanes()
        columns = self._steps.items()
        self._out.append({"kind": "steps", **{name: rows[:done] for name, rows in columns}})
        self._steps = {name: rows[done:] for name, rows in columns}

    def _send_lanes(self) -> None:
        self._out.extend(self._lanes.take())
