"""Our KV connector: vLLM's hooks, handed on to the planner (scheduler) and the worker.

vLLM makes one of it in the scheduler and one in every worker. Nothing is decided here: the
scheduler's side is driven by `caesura.scheduler.vllm.paused.manager`, and does nothing without it.
"""

import logging
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.platforms import current_platform

from caesura.scheduler.vllm.engine_state import Blocks
from caesura.scheduler.vllm.records.export import RecordStats
from caesura.scheduler.vllm.swap.host import HostStore, keys_of
from caesura.scheduler.vllm.swap.messages import SwapOrders, SwapReport
from caesura.scheduler.vllm.swap.planner import SwapPlanner
from caesura.scheduler.vllm.swap.prometheus import SwapMetrics
from caesura.scheduler.vllm.swap.regions import SwapUnavailable, block_bytes, host_slots
from caesura.scheduler.vllm.swap.worker import SwapWorker

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger(__name__)

DEFAULT_HOST_GIB = 4.0


class CaesuraConnector(KVConnectorBase_V1, SupportsHMA):
    """Swaps KV cache of paused requests to host memory and back.

    `kv_connector_extra_config`: `host_gib` (host memory per engine, shared out to its workers; 0
    switches swapping off), `in_step` (whether a short load may join the step that needs it, layer
    by layer; on GPUs that takes piecewise CUDA graphs, so it is off there unless asked for).
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        workers = vllm_config.parallel_config.world_size
        host_bytes = int(float(extra.get("host_gib", DEFAULT_HOST_GIB)) * (1 << 30)) // workers
        self.planner: SwapPlanner | None = None
        self._worker: SwapWorker | None = None
        self.outbox: list[dict[str, Any]] = []
        """Records that leave the engine with the next statistics."""
        slots = host_slots(kv_cache_config, host_bytes)
        if role == KVConnectorRole.WORKER:
            self._worker = SwapWorker(host_bytes, kv_cache_config) if slots else None
        elif slots:
            # A load that failed is noticed with its step's output: with another step in flight
            # by then, tokens that were decoded on it would have left already.
            in_step = bool(extra.get("in_step", current_platform.is_cpu()))
            in_step = in_step and vllm_config.max_concurrent_batches == 1
            self.planner = SwapPlanner(
                HostStore(slots),
                block_size=kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size,
                block_bytes=block_bytes(kv_cache_config),
                workers=workers,
                in_step=in_step,
            )
        elif host_bytes:
            logger.warning("swapping is off: %s", _why_not(kv_cache_config))

    @property
    def requires_kv_delivery(self) -> bool:
        """Preempted requests keep their output: nobody waits for their KV."""
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Loads that join their step wait in every layer, which full CUDA graphs would skip."""
        return bool(extra_config.get("in_step", False))

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """Refuse vLLM's sleep mode: it unmaps the KV cache that the worker copies from and to."""
        return False

    # -- in the scheduler ------------------------------------------------------------------------

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Take note of the pool whose blocks copies refer to."""
        if self.planner is not None:
            self.planner.pool = Blocks(gpu_block_pool)

    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Say how many tokens behind the computed ones are on the host."""
        if self.planner is None or not self.planner.store.used or not self.planner.works:
            return 0, False
        # The last token is always computed, since it decides the next one.
        full = (request.num_tokens - 1) // self.planner.loads.block_size
        keys = keys_of(request, full)
        return self.planner.loads.match(request.request_id, keys, num_computed_tokens)

    def update_state_after_alloc(
        self, request: "Request", blocks: Any, num_external_tokens: int
    ) -> None:
        """Start the load into the blocks that were allocated for it."""
        if self.planner is not None:
            ids = blocks.get_block_ids()[0] if num_external_tokens else ()
            self.planner.loads.allocated(request.request_id, ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        """Say what the workers copy in this step."""
        if self.planner is None:
            return SwapOrders()
        return self.planner.orders(scheduler_output.total_num_scheduled_tokens > 0)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """Take in what the workers have done."""
        if self.planner is None:
            return
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, SwapReport):
            self.planner.confirm(report)
        self.planner.loads.received(
            connector_output.finished_recving or (), connector_output.failed_recving or ()
        )

    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Call off what was still to be loaded."""
        if self.planner is not None:
            self.planner.loads.call_off(request.request_id)
        return False, None

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Call off what was still to be loaded."""
        return self.request_finished(request, [])

    def has_pending_push_work(self) -> bool:
        """Keep an idle engine stepping until copies are confirmed and records have left."""
        return bool(self.outbox) or (self.planner is not None and self.planner.busy)

    def has_pending_block_frees(self) -> bool:
        """Blocks will be free when their copies are confirmed: no need to preempt anybody."""
        return self.planner is not None and self.planner.frees_blocks_soon

    def reset_cache(self) -> bool | None:
        """Forget every copy, as after a change of weights."""
        if self.planner is not None:
            self.planner.reset()
        return True

    # -- in a worker -----------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Take note of the tensors to copy from and to, and allocate host memory."""
        if self._worker is not None:
            self._worker.register_kv_caches(kv_caches)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Begin the step's copies, before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            assert isinstance(connector_metadata, SwapOrders)
            self._worker.begin_step(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start what the forward pass will wait for."""
        if self._worker is not None:
            self._worker.start_load_kv(forward_context, **kwargs)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for one layer of the loads that join this step."""
        if self._worker is not None:
            self._worker.wait_for_layer_load(layer_name)

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing that this step writes is ever copied by this step."""
        if self._worker is not None:
            self._worker.save_kv_layer(layer_name)

    def wait_for_save(self) -> None:
        """End the step; copies go on beside the next one."""
        if self._worker is not None:
            self._worker.wait_for_save()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Report loads over steps that have ended."""
        if self._worker is None:
            return KVConnectorTransferResults()
        return self._worker.get_transfer_results()

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Report blocks whose load joined a step and failed."""
        return set() if self._worker is None else self._worker.get_block_ids_with_load_errors()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """Report what has been copied."""
        return None if self._worker is None else self._worker.report()

    def shutdown(self) -> None:
        """Stop copying."""
        if self._worker is not None:
            self._worker.shutdown()

    # -- statistics ------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """Hand out the records that have gathered in the scheduler."""
        if not self.outbox:
            return None
        records = self.outbox.copy()
        self.outbox.clear()
        return RecordStats(data={"records": records})

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        """Rebuild statistics in the API process."""
        return RecordStats(data=data if data is not None else {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics | None:
        """Make the Prometheus metrics, in the API process."""
        return SwapMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _why_not(kv_cache_config: Any) -> str:
    """Say why no block of this KV cache fits into host memory."""
    try:
        return f"a block takes {block_bytes(kv_cache_config)} bytes, more than host memory has"
    except SwapUnavailable as reason:
        return str(reason)
