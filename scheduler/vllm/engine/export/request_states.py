"""The state of each request from its arrival to its end, from the scheduler's hooks.

Each change of state is a row, which the writer sends later. The cost of a step depends only on the
requests that change their state or prefill, and on the loads in progress. docs/records.md defines
the states.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.records import LanesRecord, Record, WaitRecord
from caesura.scheduler.vllm.engine.export.queue_delays import QueueDelays
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import computed_tokens
from caesura.scheduler.vllm.engine.sessions.paused_kv import PausedKV
from caesura.scheduler.vllm.engine.sessions.recorder import Lack
from caesura.scheduler.vllm.engine.sessions.session import SessionState
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner

ROWS_PER_RECORD = 2000
"""Maximum number of rows in a record: readers limit its size, so more rows take more records."""

PAUSED = ("paused", "offloaded", "dropped")


class _Entry:
    """The state of one request; it computed `reached` tokens before, and `kv` is its paused KV."""

    __slots__ = ("after", "blocks", "host", "kv", "reached", "request", "session", "state")

    def __init__(self, request: Request, session: SessionState, kv: PausedKV | None) -> None:
        self.request = request
        self.session = session
        self.kv = kv
        self.state = self.after = ""
        self.blocks = self.host = self.reached = 0


class RequestStates:
    """The states of one scheduler's requests, and the rows that are not sent yet."""

    def __init__(
        self, port: EngineState, planner: SwapPlanner | None, wall: Callable[[], float]
    ) -> None:
        """Create it; `planner` is None without a host link, `wall` returns wall-clock seconds."""
        self._port = port
        self._planner = planner
        self._wall = wall
        self._entries: dict[str, _Entry] = {}
        self._prefilling: dict[str, _Entry] = {}
        self._loading: dict[str, _Entry] = {}
        self._delays = QueueDelays()
        self._rows: list[tuple[Any, ...]] = []
        """Rows with the columns of `LanesRecord`, in its order."""
        self._over: list[WaitRecord] = []
        self._last = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def queued(self) -> int:
        """Number of requests in the queue."""
        return len(self._delays)

    @property
    def pending(self) -> bool:
        """Whether there are rows to send."""
        return bool(self._rows)

    def take(self) -> list[Record]:
        """Return the records since the last call."""
        if not self._rows:
            return []
        records: list[Record] = []
        for first in range(0, len(self._rows), ROWS_PER_RECORD):
            columns = zip(*self._rows[first : first + ROWS_PER_RECORD], strict=True)
            records.append(LanesRecord(*map(list, columns)))
        over, self._over, self._rows = self._over, [], []
        return [*records, *over]

    # -- queueing --------------------------------------------------------------------------------

    def arrived(self, request: Request, session: SessionState, kv: PausedKV | None) -> None:
        """Add a new request; `kv` is the retained KV of the request that it follows."""
        self.ended(request.request_id)  # an earlier request may have had the same id
        entry = self._entries[request.request_id] = _Entry(request, session, kv)
        if kv is not None:
            entry.reached = kv.shared_blocks(request) * self._port.block_size
            self.ended(kv.key)
        self._queue(entry, "fresh" if kv is None else "tool")

    def returned(self, request: Request) -> None:
        """Queue a paused request whose tool returned."""
        if entry := self._entries.get(request.request_id):
            self._queue(entry, "tool")

    def paused_kv(self, request_id: str) -> PausedKV | None:
        """Return the paused KV of a request, or None."""
        entry = self._entries.get(request_id)
        return entry.kv if entry is not None else None

    def preempted(self, request: Request, computed: int) -> None:
        """Queue a preempted request, which had computed `computed` tokens."""
        if entry := self._entries.get(request.request_id):
            entry.reached = max(entry.reached, computed)
            self._queue(entry, "preempted")

    def _queue(self, entry: _Entry, after: str) -> None:
        at, request_id = self.now(), entry.request.request_id
        entry.after = after
        self._prefilling.pop(request_id, None)
        self._stop_waiting(request_id, at)
        self._delays.begin(request_id, after, at, entry.session)
        self._enter(entry, "waiting", at, *self._held(entry))

    def looked(self, lacks: list[Lack], stop: str, front: str = "") -> None:
        """Note what the examined requests lacked, and why the others were not examined."""
        self._delays.looked(lacks, stop, front)

    # -- the step --------------------------------------------------------------------------------

    def stepped(self, output: SchedulerOutput) -> None:
        """Update the requests that run, load or have finished their prefill with this step."""
        scheduled = output.num_scheduled_tokens
        self._may_prefill(new.req_id for new in output.scheduled_new_reqs)
        resumed = output.scheduled_cached_reqs.resumed_req_ids
        if resumed:  # a set: records are in the order of the step, so that runs can be compared
            self._may_prefill(one for one in scheduled if one in resumed)
        for request_id in [one for one in self._prefilling if one in scheduled]:
            self._compute(self._prefilling[request_id], scheduled[request_id])
        under_way = self._planner.loads.under_way if self._planner is not None else {}
        if under_way or self._loading:
            self._load(under_way)
        self._delays.settle()

    def _may_prefill(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if entry := self._entries.get(request_id):
                self._prefilling[request_id] = entry

    def _compute(self, entry: _Entry, tokens: int) -> None:
        request, at = entry.request, self.now()
        start = computed_tokens(request) - tokens
        if start >= request.num_prompt_tokens and start >= request.num_tokens - 1:
            state = "decode"
            del self._prefilling[request.request_id]
        else:
            state = "recompute" if start < entry.reached else "prefill"
        if state != entry.state:
            self._stop_waiting(request.request_id, at)
            self._enter(entry, state, at, self._own_blocks(request), 0)

    def _load(self, under_way: Mapping[str, int]) -> None:
        """Record loads that started, and loads that ended for requests that still wait."""
        at = self.now()
        for request_id, blocks in under_way.items():
            entry = self._entries.get(request_id)
            if entry is not None and entry.state == "waiting":
                self._loading[request_id] = entry
                self._stop_waiting(request_id, at)
                self._enter(entry, "loading", at, self._own_blocks(entry.request), blocks)
        for request_id, entry in list(self._loading.items()):
            if request_id not in under_way:
                del self._loading[request_id]
                if entry.state == "loading":
                    self._queue(entry, entry.after)

    def recheck(self) -> None:
        """Check again which running requests prefill, since the KV of some was lost."""
        self._may_prefill(request.request_id for request in self._port.running())

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, kv: PausedKV, at: float) -> None:
        """Set the state of a request that paused, or that ended with a call and retained KV."""
        entry = self._entries.get(kv.key)
        if entry is None:
            return
        self._prefilling.pop(kv.key, None)
        self._stop_waiting(kv.key, at)
        entry.kv = kv
        entry.reached = max(entry.reached, kv.context_tokens)
        self._enter(entry, state_of(kv), at, *self._held(entry))

    def held(self, kv: PausedKV) -> None:
        """Update the state and the blocks of a request whose paused KV was counted."""
        entry = self._entries.get(kv.follow_up or kv.key)
        if entry is None or entry.kv is not kv:
            return
        if entry.state in PAUSED:
            state = state_of(kv)
        elif entry.state == "waiting":
            state = "waiting"
        else:
            return
        blocks, host = self._held(entry)
        if (state, blocks, host) != (entry.state, entry.blocks, entry.host):
            self._enter(entry, state, self.now(), blocks, host)

    def closed(self, kv: PausedKV) -> None:
        """Detach paused KV whose request runs or has ended, or whose follow-up did not come."""
        entry = self._entries.get(kv.follow_up or kv.key)
        if entry is not None and entry.kv is kv:
            entry.kv = None
        if kv.pause is None and kv.follow_up is None:
            self.ended(kv.key)

    def ended(self, request_id: str) -> None:
        """Set the state of a request to ended, and remove it."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        at = self.now()
        self._prefilling.pop(request_id, None)
        self._loading.pop(request_id, None)
        self._stop_waiting(request_id, at)
        self._enter(entry, "ended", at, 0, 0)

    # -- rows ------------------------------------------------------------------------------------

    def _enter(self, entry: _Entry, state: str, at: float, blocks: int, host: int) -> None:
        entry.state, entry.blocks, entry.host = state, blocks, host
        request = entry.request
        self._rows.append((request.request_id, state, at, blocks, host, request.num_tokens))

    def _stop_waiting(self, request_id: str, at: float) -> None:
        record = self._delays.end(request_id, at)
        if record is not None:
            self._over.append(record)

    def _held(self, entry: _Entry) -> tuple[int, int]:
        """Return the device blocks of a request that does not run, and its host-only blocks."""
        kv, own = entry.kv, self._own_blocks(entry.request)
        if kv is None or (own and kv.pause is not None and kv.detached is not None):
            return own, 0  # these blocks are the target of its load
        return kv.resident, kv.hosted_only

    def _own_blocks(self, request: Request) -> int:
        return self._port.block_count(request.request_id)

    def now(self) -> float:
        """Return the wall time, corrected so that it never goes backwards."""
        self._last = max(self._last, self._wall())
        return self._last


def state_of(kv: PausedKV) -> str:
    """Return the state of a paused request: where its KV is, a partial last block ignored."""
    if kv.missing or not (kv.present or kv.hosted_only):
        return "dropped"
    return "offloaded" if kv.hosted_only else "paused"
