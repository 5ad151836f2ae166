"""The state of each request from its arrival to its end, by the scheduler's hooks, and its waits.

Each change of state is a row, which the writer sends later. The cost of a step depends only on the
requests that change their state or prefill, and on the loads in progress. docs/reference/records.md
defines the states.

The scheduler examines only the front of the queue in a step. All requests behind it lack the same:
slots, tokens, or the right to overtake. They share one count per step, and a wait is the difference
of two such counts. Only examined requests have counts of their own, and only they are known to lack
blocks, so a step costs O(examined).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.kv.pressure import Charge, Pressure
from caesura.scheduler.records import LackedSteps, LanesRecord, Record, WaitRecord, WantedRow
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import computed_tokens
from caesura.scheduler.vllm.engine.sessions.recorder import Lack
from caesura.scheduler.vllm.engine.sessions.served import PausedKV, SessionState
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner

MIN_STEPS = 2
"""Waits of fewer steps are not recorded."""


FRONTS = 16
"""How many requests that stood before others are remembered."""


MOST_INTERVALS = 4096
"""The intervals of lacking that are kept for open pauses; the oldest are forgotten first."""


MOST_ROWS = 5


class _Delay:
    """The wait of one request, which began at the wall time `since`."""

    __slots__ = (
        "after",
        "batch",
        "before",
        "examined",
        "lacked",
        "misfit",
        "overtaken",
        "session",
        "since",
        "step",
    )

    def __init__(
        self, after: str, since: float, step: int, before: dict[str, int], session: SessionState
    ) -> None:
        self.after = after
        self.since = since
        self.step = step
        self.before = before
        self.session = session
        self.overtaken = session.overtaken
        self.lacked: dict[str, int] = {}
        self.misfit: tuple[int | None, int | None] = (None, None)
        self.batch: int | None = None
        self.examined = -1

    def lack(self, what: str, stop: str) -> None:
        """Count a step in which the request lacked `what`; do not count `stop` for it."""
        self.lacked[what] = self.lacked.get(what, 0) + 1
        if stop:
            self.lacked[stop] = self.lacked.get(stop, 0) - 1


class QueueDelays:
    """The waits of one scheduler's requests, and the findings of the step being scheduled."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Delay] = {}
        self._steps = 0
        self._stops: dict[str, int] = {}
        self._looked = False
        self._lacks: list[Lack] = []
        self._stop = ""
        self._front = ""
        self._fronts: deque[tuple[int, str]] = deque(maxlen=FRONTS)
        """The last requests that nobody was to overtake, each with its last such step."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request_id: str, after: str, at: float, session: SessionState) -> None:
        """Begin a wait; `after` is `fresh` for a new request, else `preempted` or `tool`."""
        before = dict(self._stops)
        if self._looked and self._stop:  # the current step does not count for this request
            before[self._stop] = before.get(self._stop, 0) + 1
        self._waiting[request_id] = _Delay(after, at, self._steps + self._looked, before, session)

    def looked(self, lacks: list[Lack], stop: str, front: str = "") -> None:
        """Note what the examined requests lacked, and why the others were not examined (`stop`).

        `front` is the request that must not be overtaken, where that is why.
        """
        self._looked, self._lacks, self._stop, self._front = True, lacks, stop, front

    def settle(self) -> None:
        """Count the scheduled step for the requests that still wait."""
        if not self._looked:
            return
        for lack in self._lacks:
            wait = self._waiting.get(lack.request_id)
            if wait is not None:
                wait.lack(lack.what, self._stop)
                wait.examined = self._steps
                if lack.needed is not None:
                    wait.misfit = (lack.needed, lack.free)
                if lack.batch is not None:
                    wait.batch = lack.batch
        if self._stop:
            self._stops[self._stop] = self._stops.get(self._stop, 0) + 1
        if self._front:
            if self._fronts and self._fronts[-1][1] == self._front:
                self._fronts.pop()
            self._fronts.append((self._steps, self._front))
        self._steps += 1
        self._looked, self._lacks, self._stop, self._front = False, [], "", ""

    def end(self, request_id: str, at: float) -> WaitRecord | None:
        """End a wait; return its record, or None if it was shorter than `MIN_STEPS`."""
        wait = self._waiting.pop(request_id, None)
        if wait is None or self._steps - wait.step < MIN_STEPS:
            return None
        needed, free = wait.misfit
        lacked = self._lacked(wait)
        return WaitRecord(
            request=request_id,
            since=wait.since,
            until=at,
            steps=self._steps - wait.step,
            lacked=lacked,
            needed_blocks=needed,
            free_blocks=free,
            overtaken=wait.session.overtaken - wait.overtaken,
            behind=self._ahead_of(request_id, wait) if lacked.line else None,
            admitted_most=wait.batch,
            after=wait.after,
        )

    def _ahead_of(self, request_id: str, wait: _Delay) -> str | None:
        """Return the last request that this one stood behind without being examined."""
        for step, front in reversed(self._fronts):
            if step >= wait.step and step != wait.examined and front != request_id:
                return front
        return None

    def _lacked(self, wait: _Delay) -> LackedSteps:
        steps = {
            what: wait.lacked.get(what, 0) + self._stops.get(what, 0) - wait.before.get(what, 0)
            for what in {*wait.lacked, *self._stops} - {""}
        }
        return LackedSteps(**{what: max(0, lacked) for what, lacked in steps.items()})


class Wanted(NamedTuple):
    """How many requests lacked blocks in a stretch of time, and those that did so longest."""

    requests: int
    rows: tuple[WantedRow, ...]


def lacked_blocks(lacks: Sequence[Lack], stop: str, queued: int, slots: int) -> float:
    """Return the blocks that waiting requests lack, 0 where the examined ones lack none.

    Those behind the last examined one stand in line for what it lacks. They count with the mean
    of the examined ones, as far as there are `slots` to run them.
    """
    misfits = [lack for lack in lacks if lack.what == "blocks"]
    if not misfits:
        return 0.0
    needed = sum(lack.needed or 0 for lack in misfits)
    waiting = len(misfits)
    if stop == "line":
        waiting = max(waiting, min(waiting + queued - len(lacks), slots))
    return max(0.0, needed / len(misfits) * waiting - (misfits[-1].free or 0))


class BlockDemand:
    """The demand for one engine's blocks over time, and the charges of its pauses."""

    def __init__(self) -> None:
        self._pressure = Pressure()
        self._lacks: list[Lack] = []
        self._stop = ""
        self._lacking: dict[str, float] = {}
        self._past: deque[tuple[float, float, str]] = deque(maxlen=MOST_INTERVALS)
        self._since: dict[Charge, float] = {}
        self._back: dict[str, Charge] = {}
        """The charges of pauses whose results have come, by the request that queues."""

    def looked(self, lacks: list[Lack], stop: str) -> None:
        """Note what the examined requests lacked in the step that is being scheduled."""
        self._lacks, self._stop = lacks, stop

    def stepped(self, now: float, free: int, queued: int, slots: int) -> None:
        """Settle a scheduled step, which left `free` blocks, `slots` and `queued` requests."""
        lacks, self._lacks = self._lacks, []
        lacked = lacked_blocks(lacks, self._stop, queued, slots)
        own = self._own(lacks) if lacked and self._back else None
        self._pressure.lack(now, lacked, free, own)
        self._note(now, [lack.request_id for lack in lacks if lack.what == "blocks"])

    def _own(self, lacks: Sequence[Lack]) -> dict[Charge, float]:
        """Return what requests lack themselves that hold blocks since their pauses."""
        misfits = [lack for lack in lacks if lack.what == "blocks"]
        mean = sum(lack.needed or 0 for lack in misfits) / max(1, len(misfits))
        ids = (lack.request_id for lack in misfits)
        return {self._back[each]: mean for each in ids if each in self._back}

    def _note(self, now: float, lacking: Sequence[str]) -> None:
        if not (lacking or self._lacking):
            return
        still = {request_id: self._lacking.pop(request_id, now) for request_id in lacking}
        if self._since:
            self._past.extend((now, since, request) for request, since in self._lacking.items())
        self._lacking = still

    # -- pauses ----------------------------------------------------------------------------------

    def begin(self, now: float, blocks: int) -> Charge:
        """Return the charge of a pause that begins with `blocks` blocks."""
        charge = self._pressure.begin(now, blocks)
        self._since[charge] = now
        return charge

    def change(self, charge: Charge, now: float, held: int) -> None:
        """Let a pause hold `held` blocks from now on."""
        self._pressure.change(charge, now, held)

    def result(self, charge: Charge, now: float, request_id: str) -> None:
        """Note that the result of a pause has come, with which this request queues."""
        self._pressure.result(charge, now)
        self._back[request_id] = charge

    def end(self, charge: Charge, now: float) -> None:
        """Close the charge of a pause, and forget who lacked blocks before all open ones."""
        self._pressure.end(charge, now)
        self._since.pop(charge, None)
        for request_id in [each for each, back in self._back.items() if back is charge]:
            del self._back[request_id]
        oldest = next(iter(self._since.values()), None)
        while self._past and (oldest is None or self._past[0][0] <= oldest):
            self._past.popleft()

    def wanted(self, charge: Charge, begin: float, end: float) -> Wanted:
        """Return who else lacked blocks from `begin`, when this open pause began, to `end`."""
        seconds: dict[str, float] = {}
        itself = {each for each, back in self._back.items() if back is charge}
        lacking = [(end, since, request) for request, since in self._lacking.items()]
        for until, since, request in chain(lacking, reversed(self._past)):
            if until <= begin:
                break
            lacked = min(until, end) - max(since, begin)
            if lacked > 0 and request not in itself:
                seconds[request] = seconds.get(request, 0.0) + lacked
        longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:MOST_ROWS]
        return Wanted(len(seconds), tuple(WantedRow(who, round(s, 6)) for who, s in longest))


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
            entry.reached = kv.shared_tokens(request, self._port.hash_tokens)
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
