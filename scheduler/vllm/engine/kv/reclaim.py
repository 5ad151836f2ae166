"""Reclaiming of paused KV, so that paused requests never block other requests.

Blocks are taken from paused requests first, in the handling's order. Requests that have returned
from a pause and hold KV while they queue come last, from the back of the queue.
"""

import logging
from collections.abc import Sequence

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.scheduler.vllm.engine.kv.manager import PausedKVManager
from caesura.scheduler.vllm.engine.kv.paused_kvs import PausedKVs
from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.port.requests import is_ready
from caesura.scheduler.vllm.engine.sessions.served import Clock, PausedKV

logger = logging.getLogger(__name__)


class Reclaimer:
    """Takes blocks from the paused KV of one scheduler; returns how many are free at once."""

    def __init__(
        self, port: EngineState, manager: PausedKVManager, paused_kvs: PausedKVs, clock: Clock
    ) -> None:
        self._port = port
        self._paused_kvs = paused_kvs
        self._manager = manager
        self._clock = clock

    def from_paused(self, blocks: int, forced: bool, why: str, spare: str | None = None) -> int:
        """Reclaim blocks of paused requests, as the handling chooses; shared ones if `forced`.

        `spare` is the request that needs the blocks: KV retained for it as a follow-up stays.
        """
        manager, now = self._manager, self._clock()
        among = [
            one
            for one in self._paused_kvs.holding.values()
            if not one.returned and (spare is None or one.follow_up != spare)
        ]
        freed = manager.reclaim(blocks, forced, now, among, why, spare or "")
        if forced and freed < blocks:
            freed += manager.reclaim_shared(blocks - freed, now, among, why, spare or "")
        return self._at_once(freed)

    def from_returned(
        self, ready: Sequence[Request], blocks: int, why: str, spare: Request | None = None
    ) -> int:
        """Reclaim blocks of returned requests that wait in the queue, the last request first.

        Blocks of `spare` and of the requests before it are not reclaimed.
        """
        manager, now = self._manager, self._clock()
        whom = "" if spare is None else spare.request_id
        freed = 0
        for request in reversed(ready):
            if freed >= blocks or request is spare:
                break
            kv = self._paused_kvs.held_by(request.request_id)
            if kv is not None and kv.returned:
                freed += manager.release(kv, min(blocks - freed, kv.resident), now, why, whom)
        return self._at_once(freed)

    def _at_once(self, freed: int) -> int:
        """Return `freed`, or 0 where blocks become free only after the steps in flight."""
        return 0 if self._port.frees_wait_for_steps() else freed

    def copies_first(self) -> bool:
        """Return whether to wait until paused KV has copies, even if nothing runs meanwhile.

        Discarded KV would be computed again, which takes longer than its copy.
        """
        return self._manager.soon_copied(self._clock())

    def unwedge(self, output: SchedulerOutput) -> bool:
        """Drop paused KV if nothing runs although a request is ready, so that one can run.

        Admission predicts the blocks of a step. This guarantees progress where the prediction is
        wrong, for example for an unknown cache layout. Return whether the next step must use
        vLLM's own order.
        """
        port, manager, now = self._port, self._manager, self._clock()
        if output.total_num_scheduled_tokens or port.running() or port.is_paused():
            return False
        if manager.loading or port.frees_are_pending():
            return False  # a request will run soon, or blocks will be free soon
        if manager.copying and self.copies_first():
            return False
        head = next((one for one in port.in_queue_order() if is_ready(one)), None)
        if head is None:
            return False
        before = port.blocks.free()
        paused_kvs = list(self._paused_kvs.holding.values())
        own = [one for one in paused_kvs if head.request_id in (one.key, one.follow_up)]
        self._drop([one for one in paused_kvs if one not in own], now)
        freed = port.blocks.free() - before
        if freed:
            logger.warning(
                "nothing could be scheduled: reclaimed %d blocks of paused requests", freed
            )
            return False
        # Its blocks may be in the prefix cache twice, and vLLM gives it the other copy. Or a later
        # request would fit, but vLLM stops at the first misfit.
        self._drop(own, now)
        return True

    def _drop(self, paused_kvs: Sequence[PausedKV], now: float) -> None:
        for kv in paused_kvs:
            self._manager.drop(kv, now, "stuck")
