"""Admission to a step: it chooses the waiting requests that vLLM may try, and makes room for them.

Before a step, admission compares the blocks that the step needs with the free ones. It reclaims
the difference from paused requests. Running requests always get their blocks. For a waiting
request, in the order of the queue, the handling may protect KV that is worth more than admission.
The handling may not do so if nothing runs, or if the request was overtaken too often. But a request
that is copied as a whole is not taken before its copies, which are soon made.

Returned requests that hold KV while they queue keep it while any request runs, which will free
blocks in time. There is one exception: a returned request that lacks only a few blocks takes them
from the last in the queue. Without these rules, sessions that return together would form a convoy:
each holds blocks, and none can get the rest.
"""

from vllm.v1.request import Request

from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.kv.reclaim import Reclaimer
from caesura.scheduler.vllm.engine.port import EngineState, Queue
from caesura.scheduler.vllm.engine.port.requests import waits_for_tool
from caesura.scheduler.vllm.engine.sessions.recorder import Lack, Recorder
from caesura.scheduler.vllm.engine.swap.host import keys_of
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner
from caesura.scheduler.vllm.engine.waiting_queue import WaitingQueue


class Holdback:
    """Removes requests from vLLM's queues for one `schedule()` call.

    vLLM admits from the front of its queues and stops at the first request that does not fit. So
    the queues are sorted by rank. Requests that do not fit but would be tried before one that does
    are removed, and so are those that admission refuses. After the step, all return to their
    places.
    """

    def __init__(self, port: EngineState) -> None:
        self._port = port

    def leave(self, ready: list[Request], chosen: list[Request], refused: set[str]) -> None:
        """Hold back, for the next step, the requests that vLLM must not try before the `chosen`.

        Requests ranked after the chosen ones stay: vLLM tries them too, and stops at the first
        that does not fit. So a wrong prediction about them has no effect. vLLM never tries the
        `refused` requests.
        """
        places = {request.request_id: place for place, request in enumerate(ready)}
        among = {request.request_id for request in chosen}
        last = places[chosen[-1].request_id] if chosen else -1
        # vLLM tries all requests that hold KV before the others, and stops at a misfit.
        holding_kv, others = self._port.queues()
        ahead = min((places.get(one.request_id, len(ready)) for one in others), default=len(ready))

        def stays(request: Request, queue: Queue) -> bool:
            request_id = request.request_id
            if request_id in among or request_id not in places:
                return not waits_for_tool(request)
            if request_id in refused or places[request_id] < last:
                return False
            return queue is others or places[request_id] < ahead

        for queue in (holding_kv, others):
            held = [request for request in queue if not stays(request, queue)]
            self._port.hold_back(queue, held, places)


class StepAdmission:
    """Chooses the requests that vLLM may try in each step, and makes room for them."""

    def __init__(
        self,
        port: EngineState,
        manager: PausedKVManager,
        paused_kvs: PausedKVs,
        planner: SwapPlanner | None,
        queue: WaitingQueue,
        reclaim: Reclaimer,
        recorder: Recorder,
    ) -> None:
        self.port = port
        self.manager = manager
        self.paused_kvs = paused_kvs
        self._planner = planner
        self.queue = queue
        self.reclaim = reclaim
        self.recorder = recorder
        self._holdback = Holdback(port)
        self._stuck = False

    def prepare(self, kept_slots: int) -> None:
        """Reclaim blocks for the running requests of this step and for those to be admitted.

        Other requests are held back until the step is scheduled. `kept_slots` is the number of
        runner slots of paused requests.
        """
        port, manager = self.port, self.manager
        if not (self.paused_kvs or port.anything_queued()) or port.admits_nothing():
            return
        free = port.blocks.free()
        blocks, tokens = port.running_demand(free)
        ready = self.queue.ready()
        if blocks > free and self.paused_kvs:
            free += self.reclaim.from_paused(blocks - free, True, "running")
            if blocks > free:
                free += self.reclaim.from_returned(ready, blocks - free, "running")
        if not ready:
            port.hold_back_paused()
            return
        choice = _Choice(self, ready, free - blocks, port.step_tokens - tokens, kept_slots)
        chosen = choice.choose()
        by_vllm = not (chosen or port.running() or manager.loading) or self._stuck
        self._stuck = False
        if not by_vllm and (len(ready) > 1 or choice.refused):
            self._holdback.leave(ready, chosen, choice.refused)
            self.queue.passed_over(ready, chosen)
        else:
            port.hold_back_paused()

    def leave_to_vllm(self) -> None:
        """Leave the next step to vLLM's own order, since this step scheduled nothing."""
        self._stuck = True

    def loads_over_steps(self, request: Request, computed: int) -> bool:
        """Return whether a request would wait for KV from the host, with blocks allocated to it."""
        planner = self._planner
        if planner is None or not planner.loads_pay:
            return False
        if not self.port.layout.plain:
            return planner.loads.match_whole(request.request_id, computed)[1]
        keys = keys_of(request, (request.num_tokens - 1) // planner.loads.block_size)
        return planner.loads.takes_steps(keys, computed)


class _Choice:
    """Chooses the requests of one step."""

    def __init__(
        self, step: StepAdmission, ready: list[Request], free: int, budget: int, kept_slots: int
    ) -> None:
        """Create it; running requests leave `free` blocks and `budget` query tokens."""
        self._step = step
        self._ready = ready
        self._free = free
        self._budget = budget
        self._slots = step.port.slots_left(kept_slots)
        self._extras = step.queue.rules.max_extra_requests
        self._hopeless = 1 << 30
        self._admitted = 0
        self._chosen: list[Request] = []
        self._lacks: list[Lack] = []
        self.refused: set[str] = set()

    def choose(self) -> list[Request]:
        """Return the requests that vLLM may try, in the order of the queue."""
        port, queue = self._step.port, self._step.queue
        stop, front, look_further = "", "", queue.misfits()
        gate = queue.gate()
        for request in self._ready:
            if port.was_passed_over(request):
                # vLLM has its own reason to skip it, so it does not keep others out.
                self._chosen.append(request)
                self._lacks.append(Lack(request.request_id, ""))
                continue
            stop = self._stop()
            if stop:
                break
            kept_out = gate is not None and not gate.admits(queue.batched(request))
            if kept_out and not self._alone:
                self._lacks.append(Lack(request.request_id, "admission", batch=self._batch))
            elif self._fits(request):
                self._chosen.append(request)
                self._admitted += 1
                continue
            if not look_further(request):
                stop, front = "line", request.request_id
                break
        if gate is not None:
            self.refused = {one.request_id for one in self._ready if one not in self._chosen}
        self._step.recorder.looked(self._lacks, stop, front)
        return self._chosen

    def _stop(self) -> str:
        """Return the exhausted resource that ends the choice, or an empty text."""
        if self._slots <= self._admitted:
            return "slots"
        return "tokens" if self._budget <= 0 and not self._extras else ""

    @property
    def _batch(self) -> int:
        return len(self._step.port.running()) + self._admitted

    @property
    def _alone(self) -> bool:
        return not (self._step.port.running() or self._step.manager.loading or self._admitted)

    def _fits(self, request: Request) -> bool:
        """Reclaim blocks for the request if needed, and return whether it fits."""
        step, queue = self._step, self._step.queue
        needed, computed = queue.misfit(request, self._free) or step.port.admission_demand(
            request, self._free, step.loads_over_steps
        )
        if needed > self._free and self._budget > 0:
            self._make_room(request, needed)
        if needed > self._free:
            queue.misfitted(request, needed, computed)
            self._lacks.append(Lack(request.request_id, "blocks", needed, self._free))
            return False
        self._free -= needed
        # Without tokens left the request lacks them, but vLLM may still admit it.
        self._lacks.append(Lack(request.request_id, "tokens" if self._budget <= 0 else ""))
        self._extras -= self._budget <= 0
        self._budget -= request.num_tokens - (computed or queue.known_tokens(request))
        return True

    def _make_room(self, request: Request, needed: int) -> None:
        """Reclaim blocks to admit a waiting request."""
        step, paused_kvs = self._step, self._step.paused_kvs
        if not paused_kvs:
            return
        short = needed - self._free
        forced = step.queue.overdue(request) or (self._alone and not step.reclaim.copies_first())
        if forced or short < self._hopeless:
            self._free += step.reclaim.from_paused(short, forced, "admit", request.request_id)
            short = needed - self._free
            if short <= 0:
                return
            self._hopeless = short
        returned = paused_kvs.held_by(request.request_id) is not None
        if step.queue.rules.takes_from_returned(short, returned, forced):
            self._free += step.reclaim.from_returned(self._ready, short, "admit", request)
