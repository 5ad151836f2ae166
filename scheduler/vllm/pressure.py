"""Reclaiming the KV cache of paused requests, so that they never stand in anybody's way.

Before a step, the blocks that it will ask for are compared with those that are free (`admitting`).
What is missing is taken from paused requests, in the order that the handling gives. Running
requests always win. To admit a waiting one, in the order of the line, a handling may protect what
is worth more where it is. It may not if nothing runs: then the first in the line is admitted by
force. The same holds for a request that was overtaken for too long (`line.MAX_OVERTAKEN_STEPS`).
Requests that have come back from a pause and hold KV while they queue are spared as long as
somebody is running, who will free blocks in time, with one exception: a request that is back and
all but complete takes the few blocks that it lacks from the last in the line. Without these rules
sessions that all come back at once form a convoy: each holds blocks, none can get the rest.
"""

import logging
from collections.abc import Sequence
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.vllm.admitting import admission_needs, running_needs
from caesura.scheduler.vllm.aside import READY, waiting
from caesura.scheduler.vllm.holding import Holding
from caesura.scheduler.vllm.waits import Lack

logger = logging.getLogger(__name__)

FEW_BLOCKS = 8
"""So many blocks at most a returning request takes from those behind it in the line."""

EXTRAS = 8
"""So many requests may be tried beyond the step's tokens, as far as their blocks are free.

What the prefix cache has of a new request is not asked unless blocks are short; vLLM, which asks,
stops where the tokens end.
"""


def relieve(scheduler: Any) -> None:
    """Reclaim what the running requests need in this step, and those about to be admitted.

    Whoever is not to be admitted stands aside until the step is made.
    """
    if scheduler.pause_state == PauseState.PAUSED_ALL:
        return
    keeper, line = scheduler._keeper, scheduler._line
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    blocks, tokens = running_needs(scheduler, free)
    ready = line.ready()
    if blocks > free and keeper.holdings:
        free += _reclaim(scheduler, blocks - free, True, _paused(keeper), "running")
        if blocks > free:
            free += _reclaim_returned(scheduler, ready, blocks - free, None, "running")
    if not ready:
        scheduler._aside.leave_paused()
        return
    budget = scheduler.max_num_scheduled_tokens - tokens
    admissions = _Admissions(scheduler, ready, free - blocks, budget)
    chosen = admissions.choose()
    nobody = not (chosen or scheduler.running or keeper.loading)
    nobody, line.stuck = nobody or line.stuck, False
    if not nobody and (len(ready) > 1 or admissions.refused):
        scheduler._aside.leave(ready, chosen, admissions.refused)
        line.passed_over(ready, chosen)
    else:
        scheduler._aside.leave_paused()


class _Admissions:
    """Chooses who is tried in one step, and makes room for them."""

    def __init__(self, scheduler: Any, ready: list[Request], free: int, budget: int) -> None:
        self._scheduler = scheduler
        self._line = scheduler._line
        self._keeper = scheduler._keeper
        self._ready = ready
        self._free = free
        self._budget = budget
        self._extras = EXTRAS
        self._hopeless = 1 << 30
        self._admitted = 0
        self._chosen: list[Request] = []
        self._lacks: list[Lack] = []
        self.refused: set[str] = set()

    def choose(self) -> list[Request]:
        """Return those to be tried, in the order of the line."""
        scheduler = self._scheduler
        slots = scheduler.max_num_active_reqs - len(scheduler.running)
        slots -= len(scheduler._slot_holders)
        stop, look_further = "", self._line.misfits()
        gate = self._line.gate()
        for request in self._ready:
            if not request.num_computed_tokens and request in scheduler.deferred_waiting:
                # vLLM could not take it in an earlier step, for a reason of its own (a connector
                # that is undecided, too many adapters): nobody is kept out for its sake.
                self._chosen.append(request)
                self._lacks.append(Lack(request.request_id, ""))
                continue
            stop = self._stop(slots)
            if stop:
                break
            kept_out = gate is not None and not gate.admits(self._line.batched(request))
            if kept_out and not self._alone:
                self._lacks.append(Lack(request.request_id, "admission"))
            elif self._fits(request):
                self._chosen.append(request)
                self._admitted += 1
                continue
            if not look_further(request):
                stop = "line"
                break
        if gate is not None:
            self.refused = {one.request_id for one in self._ready if one not in self._chosen}
        if (lanes := self._keeper.ledger.lanes) is not None:
            lanes.looked(self._lacks, stop)
        return self._chosen

    def _stop(self, slots: int) -> str:
        """Say what there is no more of, so that nobody else can be tried."""
        if slots <= self._admitted:
            return "slots"
        return "tokens" if self._budget <= 0 and not self._extras else ""

    @property
    def _alone(self) -> bool:
        return not (self._scheduler.running or self._keeper.loading or self._admitted)

    def _fits(self, request: Request) -> bool:
        """Whether there are blocks for the request, now that room has been made for it."""
        needed, computed = self._line.misfit(request, self._free) or admission_needs(
            self._scheduler, request, self._free
        )
        if needed > self._free and self._budget > 0:
            self._make_room(request, needed)
        if needed > self._free:
            self._line.misfitted(request, needed, computed)
            self._lacks.append(Lack(request.request_id, "blocks", needed, self._free))
            return False
        self._free -= needed
        # Beyond the step's tokens it lacks them, unless vLLM takes it after all.
        self._lacks.append(Lack(request.request_id, "tokens" if self._budget <= 0 else ""))
        self._extras -= self._budget <= 0
        self._budget -= request.num_tokens - (computed or self._line.known_tokens(request))
        return True

    def _make_room(self, request: Request, needed: int) -> None:
        """Reclaim blocks to admit a waiting request."""
        scheduler, keeper = self._scheduler, self._keeper
        if not keeper.holdings:
            return
        short = needed - self._free
        forced = self._alone or self._line.overdue(request)
        if forced or short < self._hopeless:
            among = [one for one in _paused(keeper) if one.follow_up != request.request_id]
            self._free += _reclaim(scheduler, short, forced, among, "admit")
            short = needed - self._free
            if short <= 0:
                return
            self._hopeless = short
        if forced or (request.request_id in keeper.holdings and short <= FEW_BLOCKS):
            self._free += _reclaim_returned(scheduler, self._ready, short, request, "admit")


def unwedge(scheduler: Any, output: SchedulerOutput) -> None:
    """Make sure of progress: nothing runs, somebody is ready, so everything else gives way.

    `relieve` predicts what a step needs; this holds even where the prediction is wrong, as it may
    be for a cache layout that it has not met.
    """
    if output.total_num_scheduled_tokens or scheduler.running:
        return
    if scheduler.pause_state != PauseState.UNPAUSED:
        return
    if scheduler._keeper.loading:
        return
    if scheduler.defer_block_free and scheduler.sched_step_seq > scheduler.processed_step_seq:
        return  # blocks will be free when the steps in flight are over
    head = next((one for one in waiting(scheduler) if one.status in READY), None)
    if head is None:
        return
    keeper, now = scheduler._keeper, scheduler._clock()
    pool = scheduler.kv_cache_manager.block_pool
    before = pool.get_num_free_blocks()
    holdings = list(keeper.holdings.values())
    own = [one for one in holdings if head.request_id in (one.key, one.follow_up)]
    for holding in holdings:
        if holding not in own:
            keeper.drop(holding, now, "stuck")
    freed = pool.get_num_free_blocks() - before
    if freed:
        logger.warning("nothing could be scheduled: reclaimed %d blocks of paused requests", freed)
        return
    # What it holds may lie in the prefix cache twice, and it is given the other copy; or somebody
    # behind it has all that it needs, but vLLM stops at the first misfit: let it choose for once.
    for holding in own:
        keeper.drop(holding, now, "stuck")
    scheduler._line.stuck = True


def _reclaim(scheduler: Any, blocks: int, forced: bool, among: list[Holding], why: str) -> int:
    """Have the handling choose; what nobody owns alone goes last, and only if it must."""
    keeper, now = scheduler._keeper, scheduler._clock()
    freed = keeper.reclaim(blocks, forced, now, among, why)
    if forced and freed < blocks:
        freed += keeper.reclaim_shared(blocks - freed, now, among, why)
    return _freed(scheduler, freed)


def _freed(scheduler: Any, expected: int) -> int:
    """Return how many blocks are free at once: none, while a step in flight may touch them."""
    return 0 if scheduler.defer_block_free else expected


def _paused(keeper: Any) -> list[Holding]:
    return [holding for holding in keeper.holdings.values() if not holding.returned]


def _reclaim_returned(
    scheduler: Any, ready: Sequence[Request], blocks: int, spare: Request | None, why: str
) -> int:
    """Take KV from requests that came back and queue, the last in the line first.

    One by one from the back, and never from `spare` or from those before it.
    """
    keeper, now = scheduler._keeper, scheduler._clock()
    freed = 0
    for request in reversed(ready):
        if freed >= blocks or request is spare:
            break
        holding = keeper.holdings.get(request.request_id)
        if holding is not None and holding.returned:
            freed += keeper.release(holding, min(blocks - freed, holding.resident), now, why)
    return _freed(scheduler, freed)
