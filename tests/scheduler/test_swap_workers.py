"""Several workers: each swaps its share of every block, and all must have done so."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

from caesura.scheduler.vllm.engine.connector import CaesuraConnector
from caesura.scheduler.vllm.engine.port import Blocks
from caesura.scheduler.vllm.engine.swap.host import HostStore
from caesura.scheduler.vllm.engine.swap.messages import Save, SwapReport, Traffic, WorkerMemory
from caesura.scheduler.vllm.engine.swap.planner import Copied, SwapPlanner
from caesura.scheduler.vllm.engine.swap.regions import block_bytes, worker_share
from caesura.scheduler.vllm.engine.swap.worker import SwapWorker
from tests.scheduler.copying import CONFIG, HOST_BYTES, make_caches, make_worker, step, until_idle

BLOCK_TOKENS = 16


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 1
        self.is_null = False


class Pool:
    """As much of vLLM's pool as saves use."""

    num_gpu_blocks = 100

    def touch(self, blocks: Any) -> None:
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks: Any) -> None:
        for block in blocks:
            block.ref_cnt -= 1


def make_planner(workers: int = 2, slots: int = 8) -> SwapPlanner:
    planner = SwapPlanner(
        HostStore(slots), block_size=BLOCK_TOKENS, block_bytes=1600, workers=workers
    )
    planner.pool = Blocks(Pool())  # type: ignore[arg-type]
    planner.budget = 100
    return planner


def saved(worker: int, job: int, seconds: float, blocks: int, block_size: int = 1600) -> SwapReport:
    return SwapReport(worker, {job: 1}, {}, Traffic(blocks * block_size, seconds, 0.0))


def order(planner: SwapPlanner, *keys: str) -> tuple[Save, list[Block]]:
    blocks = [Block(index) for index, _ in enumerate(keys)]
    planner.wish(zip(blocks, keys, strict=True))  # type: ignore[arg-type]
    (save,) = planner.orders(computes=True).saves
    return save, blocks


def test_a_copy_counts_when_every_worker_has_made_it() -> None:
    planner = make_planner()
    save, blocks = order(planner, "a", "b")
    planner.confirm(saved(0, save.job, 0.5, 2))
    assert planner.store.slot_of("a") is None
    assert [block.ref_cnt for block in blocks] == [2, 2]
    assert not planner.copied
    planner.confirm(saved(1, save.job, 0.8, 2))
    assert planner.store.slot_of("a") is not None
    assert [block.ref_cnt for block in blocks] == [1, 1]
    assert list(planner.copied) == [Copied("out", 2 * BLOCK_TOKENS, 0.8, 0.0)]


def test_one_worker_that_fails_fails_the_copy() -> None:
    planner = make_planner()
    for attempt in range(planner.max_failures):
        save, blocks = order(planner, f"{attempt}")
        planner.confirm(saved(0, save.job, 0.5, 1))
        planner.confirm(SwapReport(1, {}, {save.job: 1}))
        assert planner.store.used == 0
        assert [block.ref_cnt for block in blocks] == [1]
    assert not planner.works
    assert not planner.copied, "a copy that one worker lacks says nothing of the link"


def test_reports_of_one_step_come_together() -> None:
    """As vLLM adds them up, with workers that report in different steps."""
    planner, together = make_planner(), KVOutputAggregator(2)
    save, _ = order(planner, "a", "b")

    def outputs(*reports: SwapReport | None) -> SwapReport:
        runs = [
            ModelRunnerOutput(
                req_ids=[],
                req_id_to_index={},
                kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=report),
            )
            for report in reports
        ]
        combined = together.aggregate(runs)
        assert combined is not None and combined.kv_connector_output is not None
        meta = combined.kv_connector_output.kv_connector_worker_meta
        assert isinstance(meta, SwapReport)
        return meta

    planner.confirm(outputs(None, SwapReport(1, {}, {}, Traffic(1600, 0.2, 0.1))))
    assert not planner.copied
    planner.confirm(outputs(saved(0, save.job, 0.5, 2), saved(1, save.job, 0.2, 1)))
    assert sum(copied.tokens for copied in planner.copied) == 2 * BLOCK_TOKENS
    assert sum(copied.seconds for copied in planner.copied) == pytest.approx(0.5)
    assert planner.store.slot_of("b") is not None


def test_the_worker_with_the_fewest_slots_decides() -> None:
    planner = make_planner(slots=8)
    planner.agree([WorkerMemory(0, 8, 1600), WorkerMemory(1, 5, 3200)])
    assert planner.works
    assert planner.store.slots == planner.store.available == 5
    assert planner.engine_block_bytes == 4800
    save, _ = order(planner, "a")
    planner.confirm(saved(0, save.job, 0.5, 1))
    planner.confirm(saved(1, save.job, 0.4, 1, block_size=3200))
    assert list(planner.copied) == [Copied("out", BLOCK_TOKENS, 0.5, 0.0)]


@pytest.mark.parametrize(
    "told",
    [[], [WorkerMemory(0, 8, 1600)], [WorkerMemory(0, 8, 1600), WorkerMemory(1, 0, 0)]],
    ids=["none", "one-of-two", "one-cannot"],
)
def test_swapping_is_off_unless_every_worker_can(
    told: list[WorkerMemory], caplog: pytest.LogCaptureFixture
) -> None:
    planner = make_planner()
    planner.agree(told)
    assert not planner.works
    assert "swapping is off" in caplog.text


def test_a_worker_tells_what_it_has() -> None:
    worker = make_worker(make_caches())
    assert worker.memory() == WorkerMemory(0, worker.slots, block_bytes(CONFIG))
    worker.shutdown()
    assert worker.memory() == WorkerMemory(0, 0, 0)


def test_reports_carry_their_workers_rank() -> None:
    worker = SwapWorker(HOST_BYTES, CONFIG, rank=3)
    worker.register_kv_caches(make_caches())
    report = step(worker, Save(1, [1], [1]))[2]
    if not report.saved:
        report = until_idle(worker)[0]
    assert (report.worker, report.saved) == (3, {1: 1})
    assert worker.report() is None
    worker.shutdown()


def test_host_memory_is_shared_as_the_kv_of_a_block_is() -> None:
    own = sum(len(group.layer_names) for group in CONFIG.kv_cache_groups)
    assert worker_share(CONFIG, own, workers=2, stages=1) == 0.5
    assert worker_share(CONFIG, own, workers=1, stages=1) == 1.0
    # One stage of a pipeline of two has a third of the layers, divided among two workers.
    assert worker_share(CONFIG, 3 * own, workers=4, stages=2) == pytest.approx(1 / 6)


@pytest.mark.parametrize("parts", [1, 2])
def test_blocks_whose_tokens_workers_divide_are_not_swapped(
    parts: int, caplog: pytest.LogCaptureFixture
) -> None:
    parallel = SimpleNamespace(
        world_size=2,
        rank=0,
        pipeline_parallel_size=1,
        decode_context_parallel_size=parts,
        prefill_context_parallel_size=1,
    )
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config={"host_gib": 1}),
        parallel_config=parallel,
        model_config=SimpleNamespace(get_total_num_hidden_layers=lambda: 2),
        max_concurrent_batches=1,
    )
    connector = CaesuraConnector(config, KVConnectorRole.SCHEDULER, CONFIG)
    assert (connector.planner is None) == (parts > 1)
    told = "context parallelism divides the tokens of a block into 2 parts"
    assert (told in caplog.text) == (parts > 1)
    worker = CaesuraConnector(config, KVConnectorRole.WORKER, CONFIG)
    assert (worker.get_handshake_metadata() is None) == (parts > 1)
