"""An engine of several workers says what an engine of one says, whatever its pauses go through.

The workers run in processes of their own, by vLLM's multiprocessing executor. With tensor
parallelism each holds the KV of some heads, and with pipeline parallelism that of some layers, of
which one has more than the other here. What one worker says is written down first.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from caesura.scheduler.vllm.client.launch import PIPELINE_ON_CPU
from caesura.scheduler.vllm.engine.swap.messages import WorkerMemory
from tests.engine.exactness import (
    HANDLINGS,
    PAUSES,
    Talk,
    answer,
    begin,
    make_core,
    plan,
    said_as_planned,
    talk_over_pauses,
    talk_under_pressure,
)
from tests.engine.swapping import SwapAll, swapping_all, until_swapped
from tests.scheduler.whims import Whims

from .core import Core

# Each of several processes imports vLLM, which takes long on a busy machine.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

SESSIONS = 6
HOST_GIB = 0.05
WAYS: dict[str, dict[str, Any]] = {
    "tensor-2": {"tensor_parallel_size": 2},
    "pipeline-2": {"pipeline_parallel_size": 2, **PIPELINE_ON_CPU},
}


@pytest.fixture(scope="module")
def talks() -> dict[str, Talk]:
    """What one worker says, computed from scratch."""
    alone = make_core(True, 512, HOST_GIB)
    try:
        return {f"s{seed}": plan(alone, 900 + seed) for seed in range(SESSIONS)}
    finally:
        alone.close()


@pytest.fixture(scope="module", params=WAYS)
def core(request: pytest.FixtureRequest, talks: dict[str, Talk]) -> Iterator[Core]:
    way = {**WAYS[request.param], "distributed_executor_backend": "mp"}
    made = make_core(True, 512, HOST_GIB, parallel=way)
    yield made
    made.close()


def named(talks: dict[str, Talk], run: str) -> dict[str, Talk]:
    return {f"{run}-{name}": talk for name, talk in talks.items()}


def wipe(worker: Any) -> int:
    """Zero a worker's KV cache; return its number of layers."""
    caches = worker.model_runner.kv_caches
    for cache in caches:
        cache.zero_()
    return len(caches)


def memory(worker: Any) -> WorkerMemory:
    """What a worker told the scheduler."""
    from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

    told = get_kv_transfer_group().get_handshake_metadata()
    assert isinstance(told, WorkerMemory)
    return told


def spoil(worker: Any, rank: int, how: str) -> None:
    """Make one worker leave out its copies from the host, or fail at those to it."""
    from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

    copier = get_kv_transfer_group()._worker._copier
    true = type(copier).copy

    def copy(layer: int, task: Any) -> None:
        if how == "fail saves" and task.out:
            raise OSError("the copy fails in this worker")
        if how != "skip loads" or task.out:
            true(copier, layer, task)

    if worker.rank == rank:
        copier.copy = copy


def swap_out(core: Core) -> None:
    """Step until nothing of the paused sessions is on the devices, and wipe these."""
    until_swapped(core)
    core.idle(4)  # what is left in the queue of batches
    assert core.scheduler.reset_prefix_cache()
    assert sum(core.on_workers(wipe)) >= 3


def come_back(core: Core, talks: dict[str, Talk], turns: int) -> list[bool]:
    """Run so many turns over swaps; tell which sessions say what they should in the last."""
    with swapping_all(core):
        begin(core, talks)
        core.run(talks)
        for turn in range(turns):
            said_as_planned(core, talks, turn)
            swap_out(core)
            answer(core, talks, turn)
            core.run(talks)
            loaded = [core.reports[name]["resume"]["loaded_tokens"] for name in talks]
            assert all(loaded), loaded
    return [core.said[name] == talk.said[turns] for name, talk in talks.items()]


@pytest.mark.parametrize("handling", HANDLINGS)
def test_several_workers_say_what_one_says(
    core: Core, talks: dict[str, Talk], handling: str
) -> None:
    talk_over_pauses(core, named(talks, handling), handling)


def test_swapped_kv_comes_back_to_every_worker(core: Core, talks: dict[str, Talk]) -> None:
    assert all(come_back(core, named(talks, "swapped"), PAUSES))


def test_control_one_worker_that_loads_nothing_is_noticed(
    core: Core, talks: dict[str, Talk]
) -> None:
    core.on_workers(spoil, 1, "skip loads")
    try:
        assert not all(come_back(core, named(talks, "spoiled"), 1))
    finally:
        core.on_workers(spoil, 1, "nothing")
        for name in list(core.scheduler.requests):
            core.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        core.idle(4)


def test_the_scheduler_knows_the_memory_of_every_worker(core: Core) -> None:
    planner = core.scheduler.parts.manager.planner
    assert planner is not None and planner.works
    workers = core.on_workers(memory)
    assert sorted(each.worker for each in workers) == [0, 1]
    assert planner.store.slots == min(each.slots for each in workers) > 0
    assert planner.engine_block_bytes == sum(each.block_bytes for each in workers)
    assert sum(each.slots * each.block_bytes for each in workers) <= HOST_GIB * (1 << 30)
    # A third of the three layers is the share of a pipeline's smaller stage.
    one_layer = planner.engine_block_bytes // 3
    stages = core.config.parallel_config.pipeline_parallel_size
    shares = [one_layer, 2 * one_layer] if stages == 2 else [planner.engine_block_bytes // 2] * 2
    assert sorted(each.block_bytes for each in workers) == shares


@pytest.mark.parametrize("seed", [0, 1])
def test_whims_in_a_small_pool(core: Core, talks: dict[str, Talk], seed: int) -> None:
    rng = random.Random(seed)
    core.scheduler.parts.manager.handling = Whims(rng)
    handlings = talk_under_pressure(core, named(talks, f"whims-{seed}"), rng)
    assert len(set(handlings)) > 1, handlings
    assert core.scheduler.requests == {}


def test_when_one_workers_copies_fail_all_is_recomputed(core: Core, talks: dict[str, Talk]) -> None:
    """The last test: swapping is off from here on."""
    manager = core.scheduler.parts.manager
    manager.handling = SwapAll()
    assert core.scheduler.reset_prefix_cache(reset_connector=True)
    core.on_workers(spoil, 1, "fail saves")
    talks = named(talks, "failing")
    begin(core, talks)
    for turn in range(PAUSES):
        core.run(talks)
        said_as_planned(core, talks, turn)
        core.idle(50)
        for name in talks:
            core.drop_kv(name)
        assert core.scheduler.reset_prefix_cache()
        answer(core, talks, turn)
    core.run(talks)
    said_as_planned(core, talks, PAUSES)
    assert manager.planner is not None and manager.planner.store.confirmed == []
