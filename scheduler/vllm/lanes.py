"""In which state each request is, from its arrival to its end: told by the scheduler's few hooks.

A request's lane is the row of its states. Whoever changes one says so here, and a row is kept until
the ledger sends it off. In a step nothing is done but for those whose state changes, those in
prefill, and the loads under way. How the states are told apart is in docs/serving.md.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.vllm.engine_state import EngineState
from caesura.scheduler.vllm.engine_state.requests import computed_tokens
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.swap.planner import SwapPlanner
from caesura.scheduler.vllm.waits import Lack, Waits

COLUMNS = ("request", "state", "at", "blocks", "host", "tokens")

ROWS_PER_RECORD = 2000
"""What many requests do between two steps is told in several records: readers bound their size."""

PAUSED = ("paused", "offloaded", "dropped")


class _Lane:
    """Where one request stands. It has computed up to `reached` before; it may hold `holding`."""

    __slots__ = ("after", "blocks", "holding", "host", "life", "reached", "request", "state")

    def __init__(self, request: Request, life: Life, holding: Holding | None) -> None:
        self.request = request
        self.life = life
        self.holding = holding
        self.state = self.after = ""
        self.blocks = self.host = self.reached = 0


class Lanes:
    """The lanes of one scheduler, as rows that have still to leave."""

    def __init__(
        self, port: EngineState, planner: SwapPlanner | None, wall: Callable[[], float]
    ) -> None:
        """`planner`: there is a link to the host; `wall` returns seconds of the wall clock."""
        self._port = port
        self._planner = planner
        self._wall = wall
        self._lanes: dict[str, _Lane] = {}
        self._prefilling: dict[str, _Lane] = {}
        self._loading: dict[str, _Lane] = {}
        self._waits = Waits()
        self._rows: list[tuple[Any, ...]] = []
        self._over: list[dict[str, Any]] = []
        self._last = 0.0

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def queued(self) -> int:
        """How many requests are in the queue."""
        return len(self._waits)

    @property
    def pending(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._rows)

    def take(self) -> list[dict[str, Any]]:
        """Return what has happened since the last call, as records."""
        if not self._rows:
            return []
        records = []
        for first in range(0, len(self._rows), ROWS_PER_RECORD):
            rows = zip(*self._rows[first : first + ROWS_PER_RECORD], strict=True)
            columns = {name: list(column) for name, column in zip(COLUMNS, rows, strict=True)}
            records.append({"kind": "lanes", **columns})
        over, self._over, self._rows = self._over, [], []
        return [*records, *over]

    # -- queueing --------------------------------------------------------------------------------

    def arrived(self, request: Request, life: Life, holding: Holding | None) -> None:
        """A request is new; with a `holding` it follows the one whose KV that is."""
        self.ended(request.request_id)  # another of the same name, if there was one
        lane = self._lanes[request.request_id] = _Lane(request, life, holding)
        if holding is not None:
            pairs = zip(holding.keys, request.block_hashes, strict=False)
            same = sum(ours == theirs for ours, theirs in pairs)
            lane.reached = same * self._port.block_size
            self.ended(holding.key)
        self._queue(lane, "fresh" if holding is None else "tool")

    def returned(self, request: Request) -> None:
        """Its tool is back."""
        if lane := self._lanes.get(request.request_id):
            self._queue(lane, "tool")

    def preempted(self, request: Request, computed: int) -> None:
        """Running requests took its blocks; it had computed so many tokens."""
        if lane := self._lanes.get(request.request_id):
            lane.reached = max(lane.reached, computed)
            self._queue(lane, "preempted")

    def _queue(self, lane: _Lane, after: str) -> None:
        at, request_id = self.now(), lane.request.request_id
        lane.after = after
        self._prefilling.pop(request_id, None)
        self._stop_waiting(request_id, at)
        self._waits.begin(request_id, after, at, lane.life)
        self._enter(lane, "waiting", at, *self._held(lane))

    def looked(self, lacks: list[Lack], stop: str) -> None:
        """Say who was looked at in vain in the step being made, and why the rest was not."""
        self._waits.looked(lacks, stop)

    # -- the step --------------------------------------------------------------------------------

    def stepped(self, output: SchedulerOutput) -> None:
        """A step was made: who runs now, who loads, and who does not prefill any more."""
        scheduled = output.num_scheduled_tokens
        self._may_prefill(new.req_id for new in output.scheduled_new_reqs)
        self._may_prefill(output.scheduled_cached_reqs.resumed_req_ids)
        for request_id in [one for one in self._prefilling if one in scheduled]:
            self._compute(self._prefilling[request_id], scheduled[request_id])
        under_way = self._planner.loads.under_way if self._planner is not None else {}
        if under_way or self._loading:
            self._load(under_way)
        self._waits.settle()

    def _may_prefill(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if lane := self._lanes.get(request_id):
                self._prefilling[request_id] = lane

    def _compute(self, lane: _Lane, tokens: int) -> None:
        request, at = lane.request, self.now()
        start = computed_tokens(request) - tokens
        if start >= request.num_prompt_tokens and start >= request.num_tokens - 1:
            state = "decode"
            del self._prefilling[request.request_id]
        else:
            state = "recompute" if start < lane.reached else "prefill"
        if state != lane.state:
            self._stop_waiting(request.request_id, at)
            self._enter(lane, state, at, self._own_blocks(request), 0)

    def _load(self, under_way: Mapping[str, int]) -> None:
        """See whose loads have begun, and whose are over without that they run."""
        at = self.now()
        for request_id, blocks in under_way.items():
            lane = self._lanes.get(request_id)
            if lane is not None and lane.state == "waiting":
                self._loading[request_id] = lane
                self._stop_waiting(request_id, at)
                self._enter(lane, "loading", at, self._own_blocks(lane.request), blocks)
        for request_id, lane in list(self._loading.items()):
            if request_id not in under_way:
                del self._loading[request_id]
                if lane.state == "loading":
                    self._queue(lane, lane.after)

    def recheck(self) -> None:
        """KV turned out not to be there: who decodes may have to prefill again."""
        self._may_prefill(request.request_id for request in self._port.running())

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, holding: Holding, at: float) -> None:
        """A request pauses, or has ended with a call and its KV is kept."""
        lane = self._lanes.get(holding.key)
        if lane is None:
            return
        self._prefilling.pop(holding.key, None)
        self._stop_waiting(holding.key, at)
        lane.holding = holding
        lane.reached = max(lane.reached, holding.context_tokens)
        self._enter(lane, state_of(holding), at, *self._held(lane))

    def held(self, holding: Holding) -> None:
        """What is known of a holding has changed."""
        lane = self._lanes.get(holding.follow_up or holding.key)
        if lane is None or lane.holding is not holding:
            return
        if lane.state in PAUSED:
            state = state_of(holding)
        elif lane.state == "waiting":
            state = "waiting"
        else:
            return
        blocks, host = self._held(lane)
        if (state, blocks, host) != (lane.state, lane.blocks, lane.host):
            self._enter(lane, state, self.now(), blocks, host)

    def closed(self, holding: Holding) -> None:
        """A holding is given up: its request runs or has ended, or nobody came for it."""
        lane = self._lanes.get(holding.follow_up or holding.key)
        if lane is not None and lane.holding is holding:
            lane.holding = None
        if holding.pause is None and holding.follow_up is None:
            self.ended(holding.key)

    def ended(self, request_id: str) -> None:
        """It is over."""
        lane = self._lanes.pop(request_id, None)
        if lane is None:
            return
        at = self.now()
        self._prefilling.pop(request_id, None)
        self._loading.pop(request_id, None)
        self._stop_waiting(request_id, at)
        self._enter(lane, "ended", at, 0, 0)

    # -- rows ------------------------------------------------------------------------------------

    def _enter(self, lane: _Lane, state: str, at: float, blocks: int, host: int) -> None:
        lane.state, lane.blocks, lane.host = state, blocks, host
        request = lane.request
        self._rows.append((request.request_id, state, at, blocks, host, request.num_tokens))

    def _stop_waiting(self, request_id: str, at: float) -> None:
        record = self._waits.end(request_id, at)
        if record is not None:
            self._over.append(record)

    def _held(self, lane: _Lane) -> tuple[int, int]:
        """Return how many blocks somebody who does not run holds, and how many on the host only."""
        holding, own = lane.holding, self._own_blocks(lane.request)
        if holding is None or (own and holding.pause is not None and holding.detached is not None):
            return own, 0  # what it has been loaded into, if there is a holding
        return holding.resident, holding.hosted_only

    def _own_blocks(self, request: Request) -> int:
        return self._port.block_count(request.request_id)

    def now(self) -> float:
        """Return the wall time, which does not go backwards here."""
        self._last = max(self._last, self._wall())
        return self._last


def state_of(holding: Holding) -> str:
    """Say where the KV of somebody who waits for a tool is; a last block counts if it is full."""
    if holding.missing or not (holding.present or holding.hosted_only):
        return "dropped"
    return "offloaded" if holding.hosted_only else "paused"
