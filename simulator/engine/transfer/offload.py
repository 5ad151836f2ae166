"""The worker of vLLM's native offloading to the host, in simulated time.

It handles its scheduler's metadata in the same order as `OffloadingConnectorWorker`. A step's
stores are submitted with the next step, so that they do not delay its tokens. A step waits for the
stores of blocks that it will overwrite.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.v1.outputs import KVConnectorOutput

from caesura.simulator.engine.clients.live import Live
from caesura.simulator.engine.transfer.copies import Copies
from caesura.simulator.engine.transfer.link import Copy
from caesura.simulator.machine import Machine
from caesura.simulator.policy import Policy


class OffloadCopies(Copies):
    """Carries out the jobs of vLLM's `OffloadingConnector`."""

    def __init__(self, machine: Machine, policy: Policy, live: dict[str, Live]) -> None:
        super().__init__(machine, policy, live)
        self._unsubmitted: dict[int, Any] = {}
        self._under_way: dict[int, Copy] = {}
        self._flushed_at = 0.0

    def begin(self, orders: Any, now: float) -> None:
        """Submit the deferred stores and those to flush, then the loads."""
        flush = sorted(orders.jobs_to_flush or ())
        for job in flush:
            if job in orders.store_jobs:
                self._unsubmitted[job] = orders.store_jobs.pop(job)
        for job, entry in self._unsubmitted.items():
            self._submit(job, len(entry.src_spec.block_ids), now, out=True)
        for job, entry in orders.load_jobs.items():
            blocks = len(entry.dst_spec.block_ids)
            self._submit(job, blocks, now, out=False, request_id=entry.req_id)
            self._note_load(entry.req_id, blocks)
        self._unsubmitted = dict(orders.store_jobs)
        ends = [self._under_way[job].ends for job in flush if job in self._under_way]
        self._flushed_at = max(ends, default=0.0)

    def _submit(self, job: int, blocks: int, now: float, out: bool, request_id: str = "") -> None:
        self._under_way[job] = self._put((job, request_id), blocks, now, out)

    def held_until(self, now: float) -> float:
        """Return when the stores that the step waits for are done."""
        return max(now, self._flushed_at)

    def report(self, now: float) -> KVConnectorOutput:
        """Return the finished jobs, and the requests whose load is done."""
        received: list[str] = []
        report = OffloadingWorkerMetadata()
        for copy in self.link.take_done(now):
            job, request_id = copy.order
            del self._under_way[job]
            report.mark_completed(job)
            if not copy.out:
                received.append(request_id)
        # A list replaces the set, whose order would differ from run to run.
        return KVConnectorOutput(
            finished_recving=received,
            kv_connector_worker_meta=report if report.completed_jobs else None,
        )
