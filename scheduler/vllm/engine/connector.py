"""The KV connector: it forwards vLLM's hooks to the planner (scheduler) and the worker.

vLLM creates one instance in the scheduler and one in every worker. The connector decides nothing.
`caesura.scheduler.vllm.engine.kv.manager` drives the scheduler's side, which is idle without it.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
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
from vllm.v1.kv_cache_interface import KVCacheConfig

from caesura.scheduler.vllm.engine.export.exporter import RecordExporter, RecordStats
from caesura.scheduler.vllm.engine.port import Blocks
from caesura.scheduler.vllm.engine.port.blocks import attention_tokens
from caesura.scheduler.vllm.engine.port.layout import is_plain
from caesura.scheduler.vllm.engine.swap.host import HostStore, keys_of
from caesura.scheduler.vllm.engine.swap.messages import SwapOrders, SwapReport, WorkerMemory
from caesura.scheduler.vllm.engine.swap.planner import SwapPlanner
from caesura.scheduler.vllm.engine.swap.regions import (
    SwapUnavailable,
    block_bytes,
    host_slots,
    worker_share,
)
from caesura.scheduler.vllm.engine.swap.threads import throttled
from caesura.scheduler.vllm.engine.swap.worker import SwapWorker

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger(__name__)

DEFAULT_HOST_GIB = 4.0


class CaesuraConnector(KVConnectorBase_V1, SupportsHMA):
    """Swaps KV cache of paused requests to host memory and back.

    `kv_connector_extra_config` has three keys. `host_gib` is the host memory per engine in GiB,
    divided among its workers as the KV of a block is; 0 switches swapping off. Data-parallel
    engines have that much each. `in_step` allows a short load to join the step that needs it, layer
    by layer. On GPUs, `in_step` needs piecewise CUDA graphs, so it is off there by default.
    `link_gb_per_second` limits the copies of each worker, in 10^9 bytes per second; only a KV cache
    in main memory can be limited.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        parallel = vllm_config.parallel_config
        workers = parallel.world_size
        layers = vllm_config.model_config.get_total_num_hidden_layers()
        share = worker_share(kv_cache_config, layers, workers, parallel.pipeline_parallel_size)
        host_bytes = int(_host_gib(extra) * (1 << 30) * share)
        parts = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
        self.planner: SwapPlanner | None = None
        self._worker: SwapWorker | None = None
        self._whole = not is_plain(kv_cache_config)
        self.outbox: list[dict[str, Any]] = []
        """Records that the engine sends with its next statistics."""
        obstacle = why_not_swapped(kv_cache_config, parts)
        slots = 0 if obstacle else host_slots(kv_cache_config, host_bytes)
        copier = throttled(extra, current_platform.is_cpu())
        if role == KVConnectorRole.WORKER:
            rank = int(parallel.rank)
            self._worker = SwapWorker(host_bytes, kv_cache_config, copier, rank) if slots else None
        elif slots:
            # A failed load is noticed with its step's output. If another step were in flight by
            # then, tokens decoded from the missing KV would already have been sent.
            in_step = bool(extra.get("in_step", current_platform.is_cpu()))
            in_step = in_step and vllm_config.max_concurrent_batches == 1
            self.planner = SwapPlanner(
                HostStore(slots),
                block_size=attention_tokens(
                    kv_cache_config, kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
                ),
                block_bytes=block_bytes(kv_cache_config),
                workers=workers,
                in_step=in_step,
            )
        elif host_bytes:
            logger.warning("swapping is off: %s", obstacle or _too_small(kv_cache_config))

    @property
    def requires_kv_delivery(self) -> bool:
        """Return False: preempted requests keep their output, so nothing waits for their KV."""
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Return whether loads may join their step: full CUDA graphs skip the waits in layers."""
        return bool(extra_config.get("in_step", False))

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """Return whether nothing is swapped: sleep mode unmaps the KV cache that copies refer to.

        vLLM 0.33 asks before it starts an engine. The reset before a sleep drops every copy, but
        copies after a wake-up have not been tested on a GPU.
        """
        return _host_gib(kv_transfer_config.kv_connector_extra_config) == 0

    # -- in the scheduler ------------------------------------------------------------------------

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Give the planner the block pool that copies refer to."""
        if self.planner is not None:
            self.planner.pool = Blocks(gpu_block_pool)

    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]
    ) -> None:
        """Tell the planner what every worker has, at the engine's start."""
        if self.planner is not None:
            told = [each for each in metadata.values() if isinstance(each, WorkerMemory)]
            self.planner.agree(told)

    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Return how many tokens after the computed ones are on the host, and if asynchronous."""
        if self.planner is None or not self.planner.store.used or not self.planner.loads_pay:
            return 0, False
        if self._whole:
            return self.planner.loads.match_whole(request.request_id, num_computed_tokens)
        # The last token is always computed, since its logits yield the next token.
        full = (request.num_tokens - 1) // self.planner.loads.block_size
        keys = keys_of(request, full)
        return self.planner.loads.match(request.request_id, keys, num_computed_tokens)

    def update_state_after_alloc(
        self, request: "Request", blocks: Any, num_external_tokens: int
    ) -> None:
        """Start the load into the blocks that were allocated for it."""
        if self.planner is None:
            return
        loads, name = self.planner.loads, request.request_id
        if self._whole:
            loads.allocated_whole(name, blocks.blocks, num_external_tokens)
            return
        ids = blocks.get_block_ids()[0] if num_external_tokens else ()
        loads.allocated(name, ids, num_external_tokens)

    def get_loaded_kv_cache_group_ids(self, request: "Request") -> tuple[int, ...]:
        """Return all groups: a load fills blocks of each, which must not be zeroed meanwhile."""
        return tuple(range(len(self._kv_cache_config.kv_cache_groups)))

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        """Return the copies that the workers make in this step."""
        if self.planner is None:
            return SwapOrders()
        return self.planner.orders(scheduler_output.total_num_scheduled_tokens > 0)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """Pass the workers' reports on to the planner."""
        if self.planner is None:
            return
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, SwapReport):
            self.planner.confirm(report)
        if connector_output.failed_recving or connector_output.invalid_block_ids:
            self.planner.loads_failed()
        self.planner.loads.received(
            connector_output.finished_recving or (), connector_output.failed_recving or ()
        )

    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Cancel the request's remaining loads; return that its blocks may be freed now."""
        if self.planner is not None:
            self.planner.loads.call_off(request.request_id)
        return False, None

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Cancel the request's remaining loads; return that its blocks may be freed now."""
        return self.request_finished(request, [])

    def has_pending_push_work(self) -> bool:
        """Return whether an idle engine must keep stepping to confirm copies or send records."""
        return bool(self.outbox) or (self.planner is not None and self.planner.busy)

    def has_pending_block_frees(self) -> bool:
        """Return whether confirmed copies will free blocks soon, so that none is preempted."""
        return self.planner is not None and self.planner.frees_blocks_soon

    def reset_cache(self) -> bool | None:
        """Drop every copy, for example after the model's weights changed."""
        if self.planner is not None:
            self.planner.reset()
        return True

    # -- in a worker -----------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Map the tensors to copy from and to, and allocate host memory."""
        if self._worker is not None:
            self._worker.register_kv_caches(kv_caches)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Return the worker's host memory, for the scheduler; None if nothing is swapped."""
        return None if self._worker is None else self._worker.memory()

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Start the step's copies, before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            assert isinstance(connector_metadata, SwapOrders)
            self._worker.begin_step(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Tell the worker that a forward pass may follow, with this context."""
        if self._worker is not None:
            self._worker.start_load_kv(forward_context, **kwargs)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for one layer of the loads that join this step."""
        if self._worker is not None:
            self._worker.wait_for_layer_load(layer_name)

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Note the forward pass; a step never copies the blocks that it writes."""
        if self._worker is not None:
            self._worker.save_kv_layer(layer_name)

    def wait_for_save(self) -> None:
        """End the step; unfinished copies continue during the next one."""
        if self._worker is not None:
            self._worker.wait_for_save()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Return the asynchronous loads that have ended."""
        if self._worker is None:
            return KVConnectorTransferResults()
        return self._worker.get_transfer_results()

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks whose load joined a step and failed."""
        return set() if self._worker is None else self._worker.get_block_ids_with_load_errors()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """Return the copies made since the last report, or None."""
        return None if self._worker is None else self._worker.report()

    def shutdown(self) -> None:
        """Stop the worker's copies."""
        if self._worker is not None:
            self._worker.shutdown()

    # -- statistics ------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """Return and clear the records collected in the scheduler; None without any."""
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
        """Return the Prometheus metrics, in the API process."""
        return RecordExporter(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _host_gib(extra: Mapping[str, Any]) -> float:
    return float(extra.get("host_gib", DEFAULT_HOST_GIB))


def why_not_swapped(config: KVCacheConfig, parts: int = 1) -> str:
    """Return why the blocks of a KV cache cannot be copied, or an empty text.

    `parts`: workers divide the tokens of a block so, and its sizes here would be wrong.
    """
    if parts > 1:
        return f"context parallelism divides the tokens of a block into {parts} parts"
    try:
        block_bytes(config)
    except SwapUnavailable as reason:
        return str(reason)
    return ""


def _too_small(config: KVCacheConfig) -> str:
    return f"a block takes {block_bytes(config)} bytes; raise host_gib to hold one"
