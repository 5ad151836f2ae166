"""The worker's side of swapping: it executes orders during forward passes and reports them.

Copies are safe because the scheduler orders only whole blocks that the current step does not
write. The scheduler keeps the blocks of a save and the slots of a load until the worker reports
them. The worker reports a copy only when all its bytes have arrived. Attention waits for the loads
of its step, layer by layer.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.v1.kv_cache_interface import KVCacheConfig

from caesura.scheduler.vllm.engine.swap.copier import Copier, Task
from caesura.scheduler.vllm.engine.swap.messages import (
    Load,
    Save,
    SwapOrders,
    SwapReport,
    WorkerMemory,
)
from caesura.scheduler.vllm.engine.swap.regions import (
    Layer,
    SwapUnavailable,
    block_bytes,
    find_layers,
    host_slots,
)
from caesura.scheduler.vllm.engine.swap.threads import ThreadCopier

logger = logging.getLogger(__name__)

CopierFactory = Callable[[Sequence[Layer], int], Copier]

# A step without a forward pass waits this long for its copies. A longer wait would delay a new
# request noticeably; a shorter one would make an idle engine spin.
IDLE_SECONDS = 0.02


@dataclass(slots=True)
class _Arrival:
    """An asynchronous load, whose pieces arrive over several steps."""

    open: int = 0
    last: bool = False
    failed: bool = False


class SwapWorker:
    """Executes a worker's part of `SwapOrders`; its methods are the connector's hooks.

    One order can fail. All orders fail if the KV cache cannot be mapped or host memory cannot be
    allocated. The worker reports failed orders, and the engine continues.
    """

    def __init__(
        self,
        host_bytes: int,
        kv_cache_config: KVCacheConfig,
        copier: CopierFactory | None = None,
        rank: int = 0,
    ) -> None:
        """Create the worker of this `rank` in its engine.

        `copier` creates the copier, by default for the KV cache's device.
        """
        self._rank = rank
        self._config = kv_cache_config
        self._slots = host_slots(kv_cache_config, host_bytes)
        self._factory = copier or _copier_for_device
        self._copier: Copier | None = None
        self._layer_of: dict[str, int] = {}
        self._layers = 0
        self._forward = False
        self._arrivals: dict[str, _Arrival] = {}
        self._bad_blocks: set[int] = set()
        self._report = SwapReport(rank)

    @property
    def slots(self) -> int:
        """Number of blocks that fit into host memory."""
        return self._slots

    def memory(self) -> WorkerMemory:
        """Return what the scheduler must know of this worker, once the KV cache is registered."""
        works = self._copier is not None
        return WorkerMemory(
            self._rank, self._slots if works else 0, block_bytes(self._config) if works else 0
        )

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Map the KV cache and allocate host memory; switch swapping off if that fails."""
        try:
            layers = find_layers(kv_caches, self._config)
            if not self._slots:
                raise SwapUnavailable("host memory holds no block; raise host_gib")
            self._copier = self._factory(layers, self._slots)
        except (SwapUnavailable, RuntimeError, MemoryError) as why:
            logger.warning("swapping is off in this worker: %s", why)
            return
        self._layers = len(layers)
        for index, layer in enumerate(layers):
            self._layer_of.update(dict.fromkeys(layer.names, index))

    def begin_step(self, orders: SwapOrders) -> None:
        """Submit a step's orders before its forward pass; loads that it waits for go first."""
        self._forward = False
        if self._copier is not None:
            self._copier.begin()
        tasks = [Task(load) for load in orders.loads if self._accept_load(load)]
        tasks.sort(key=lambda task: not task.urgent)
        tasks += [Task(save) for save in orders.saves if self._accept_save(save)]
        if self._copier is not None and tasks:
            self._copier.submit(tasks)

    def start_load_kv(self, forward_context: Any = None, **kwargs: Any) -> None:
        """Record whether the step has a forward pass, since CUDA graphs skip the layers' hooks.

        For a forward pass, one of vLLM's runners has attention metadata in the context; the other
        passes keywords.
        """
        if kwargs or getattr(forward_context, "attn_metadata", None) is not None:
            self._forward = True

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Delay this layer's attention until the step's loads for it have arrived."""
        self._forward = True
        if self._copier is not None:
            # An unknown layer waits for the loads of all layers.
            self._copier.wait_layer(self._layer_of.get(layer_name, self._layers - 1))

    def save_kv_layer(self, layer_name: str) -> None:
        """Record the forward pass; a step never saves the blocks that it writes."""
        self._forward = True

    def wait_for_save(self) -> None:
        """Wait for the step's own loads; saves and other loads continue during the next step."""
        if self._copier is None:
            return
        self._copier.join()
        self._copier.end(self._forward)
        if not self._forward:
            self._copier.idle(IDLE_SECONDS)

    def get_transfer_results(self) -> KVConnectorTransferResults:
        """Return the asynchronous loads that have ended, including failed ones."""
        self._collect()
        over = {name: a for name, a in self._arrivals.items() if a.last and not a.open}
        for name in over:
            del self._arrivals[name]
        return KVConnectorTransferResults(
            finished_recving=set(over),
            failed_recving={name for name, arrival in over.items() if arrival.failed},
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks whose load for a step failed, since the last call."""
        self._collect()
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def report(self) -> SwapReport | None:
        """Return the copies made since the last call; None without any."""
        self._collect()
        empty = SwapReport(self._rank)
        if self._report == empty:
            return None
        report, self._report = self._report, empty
        return report

    def shutdown(self) -> None:
        """Stop copying and release the memory; later orders fail."""
        copier, self._copier = self._copier, None
        if copier is not None:
            copier.close()

    def _accept_load(self, load: Load) -> bool:
        """Record a load; return whether it must be copied."""
        possible = self._possible(load)
        if load.in_step:
            if not possible:
                self._bad_blocks.update(load.blocks)
            return possible and bool(load.blocks)
        arrival = self._arrivals.setdefault(load.request_id, _Arrival())
        arrival.last = arrival.last or load.last
        arrival.failed = arrival.failed or not possible
        if not load.blocks or arrival.failed:
            return False
        arrival.open += 1
        return True

    def _accept_save(self, save: Save) -> bool:
        if not self._possible(save):
            self._report.failed[save.job] = 1
            return False
        if not save.blocks:
            self._report.saved[save.job] = 1
        return bool(save.blocks)

    def _possible(self, order: Save | Load) -> bool:
        """Return whether all blocks and slots are in range, since copies use raw addresses."""
        if not order.blocks and not order.slots:
            return True
        if self._copier is None:
            return False
        blocks, slots = range(self._config.num_blocks), range(self._slots)
        fits = len(order.blocks) == len(order.slots)
        fits = fits and min(order.blocks) in blocks and max(order.blocks) in blocks
        fits = fits and min(order.slots) in slots and max(order.slots) in slots
        if not fits:
            logger.error("blocks or slots are out of range, so the copy is refused: %s", order)
        return fits

    def _collect(self) -> None:
        """Record the outcome of the tasks that finished since the last call."""
        for task in self._copier.poll() if self._copier is not None else ():
            order = task.order
            if task.error is not None:
                logger.error("a copy of KV cache failed: %s: %r", order, task.error)
            else:
                traffic = self._report.out if task.out else self._report.into
                traffic.bytes += task.bytes
                traffic.seconds += task.seconds
                traffic.beside += task.beside
            if isinstance(order, Save):
                outcome = self._report.saved if task.error is None else self._report.failed
                outcome[order.job] = 1
            elif order.in_step:
                if task.error is not None:
                    self._bad_blocks.update(order.blocks)
            else:
                arrival = self._arrivals[order.request_id]
                arrival.open -= 1
                arrival.failed = arrival.failed or task.error is not None


def _copier_for_device(layers: Sequence[Layer], slots: int) -> Copier:
    device = layers[0].parts[0].device.type
    if device == "cpu":
        return ThreadCopier(layers, slots)
    if device == "cuda":
        # The module's imports need a GPU driver.
        from caesura.scheduler.vllm.engine.swap.streams import StreamCopier

        return StreamCopier(layers, slots)
    raise SwapUnavailable(f"KV cache on {device!r} cannot be swapped; only on cpu and cuda")
