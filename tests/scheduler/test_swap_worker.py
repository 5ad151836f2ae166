"""The worker's side of swapping: no engine, tensors made by hand, a GPU made of queues."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from caesura.scheduler.vllm.swap.copier import Task
from caesura.scheduler.vllm.swap.messages import Save, SwapOrders, SwapReport
from caesura.scheduler.vllm.swap.regions import block_bytes
from caesura.scheduler.vllm.swap.streams import StreamCopier
from caesura.scheduler.vllm.swap.threads import ThreadCopier

from .copying import (
    BLOCKS,
    CONFIG,
    IN_ORDER,
    LAYERS,
    NAMES,
    SLOTS,
    Slow,
    Zeroing,
    failing,
    in_step,
    later,
    make_caches,
    make_worker,
    step,
    until_idle,
)
from .gpu import Gpu


@pytest.fixture(params=["thread", "queues", "cuda"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A kind of copier and its device: the thread, the streams on a made-up GPU, or on a real."""
    if request.param == "thread":
        return ThreadCopier, "cpu"
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
        return StreamCopier, "cuda"
    Gpu(seed=1).install(monkeypatch)
    return StreamCopier, "cpu"


# -- when copies are there -------------------------------------------------------------------------


def slow_load(wait: bool) -> list[bool]:
    """Whether each layer's attention found what was loaded, with and without the wait."""
    caches = make_caches()
    worker = make_worker(caches, Slow)
    kept = {name: cache[3].clone() for name, cache in caches.items()}
    step(worker, Save(1, [3, 4], [0, 1]), forward=False)
    found: list[bool] = []
    worker.begin_step(SwapOrders([in_step([8, 9], [0, 1])]))
    for name in IN_ORDER:
        if wait:
            worker.wait_for_layer_load(name)
        found.append(torch.equal(caches[name][8], kept[name]))
    worker.wait_for_save()
    assert all(torch.equal(caches[name][8], kept[name]) for name in NAMES)
    worker.shutdown()
    return found


def test_attention_waits_for_a_slow_load_and_would_miss_it_otherwise() -> None:
    assert slow_load(wait=True) == [True] * LAYERS
    assert slow_load(wait=False) == [False] * LAYERS


def test_a_corrupted_copy_is_noticed_here() -> None:
    caches = make_caches()
    worker = make_worker(caches, Zeroing)
    step(worker, Save(1, [3], [0]), forward=False)
    step(worker, in_step([8], [0]))
    assert not caches[NAMES[0]][8].any()
    worker.shutdown()


def test_saves_go_on_beyond_their_step_and_are_confirmed_when_done() -> None:
    worker = make_worker(make_caches(), Slow)
    took = LAYERS * 8 * Slow.per_block
    began = time.perf_counter()
    _, _, report = step(worker, Save(7, list(range(8)), list(range(8))))
    assert time.perf_counter() - began < took
    while not report.saved:
        _, _, report = step(worker, forward=False)
    assert report.saved == {7: 1}
    assert time.perf_counter() - began >= took
    worker.shutdown()


def test_a_step_without_a_forward_pass_waits_a_little() -> None:
    worker = make_worker(make_caches(), Slow)
    began = time.perf_counter()
    _, _, report = step(worker, Save(2, list(range(10)), list(range(10))), forward=False)
    assert not report.saved
    assert 0.015 < time.perf_counter() - began < LAYERS * 10 * Slow.per_block
    until_idle(worker)
    worker = make_worker(make_caches())
    _, _, report = step(worker, Save(1, [1], [1]), forward=False)
    assert report.saved == {1: 1}
    worker.shutdown()


def test_a_forward_pass_is_known_without_the_hooks_of_layers() -> None:
    waits: list[float] = []

    class Waiting(ThreadCopier):
        def idle(self, seconds: float) -> None:
            waits.append(seconds)

    worker = make_worker(make_caches(), Waiting)
    context = SimpleNamespace(attn_metadata={})
    nothing = SimpleNamespace(attn_metadata=None)
    for arguments, keywords, waiting in (
        ((context,), {}, 0),
        ((nothing,), {"num_tokens": 1}, 0),
        ((nothing,), {}, 1),
        ((), {}, 1),
    ):
        worker.begin_step(SwapOrders())
        worker.start_load_kv(*arguments, **keywords)
        worker.wait_for_save()
        assert len(waits) == waiting
        waits.clear()
    worker.shutdown()


def test_a_load_that_is_waited_for_goes_first_unless_its_slots_are_being_saved() -> None:
    log: list[tuple[int, str]] = []

    class Logging(Slow):
        def copy(self, layer: int, task: Task) -> None:
            super().copy(layer, task)
            log.append((layer, "save" if task.out else "load"))

    caches = make_caches()
    worker = make_worker(caches, Logging)
    step(worker, Save(1, [1], [1]), forward=False)
    del log[:]
    step(worker, Save(2, [2, 3, 4], [2, 3, 4]))
    step(worker, in_step([9], [1]))
    until_idle(worker)
    assert log[-1] == (2, "save")
    del log[:]
    kept = caches[NAMES[1]][5].clone()
    step(worker, Save(3, [5, 6], [5, 6]))
    step(worker, in_step([10], [5]))
    assert log == [(layer, what) for what in ("save", "load") for layer in range(LAYERS)]
    assert torch.equal(caches[NAMES[1]][10], kept)
    worker.shutdown()


# -- what is reported ------------------------------------------------------------------------------


def test_failures_are_reported_one_by_one_and_the_rest_goes_on(place: tuple[Any, str]) -> None:
    copier, device = place
    worker = make_worker(make_caches(device), failing(copier))
    total = SwapReport()
    _, _, report = step(worker, Save(1, [12], [0]), Save(2, [13], [1]), Save(3, [14], [2]))
    total.aggregate(report)
    total.aggregate(until_idle(worker)[0])
    assert (total.saved, total.failed) == ({1: 1, 3: 1}, {2: 1})
    _, bad, _ = step(worker, in_step([13, 15], [0, 2]), in_step([16], [2]))
    assert bad == {13, 15}
    orders = [later("a", [13], [0], last=False), later("b", [17], [0])]
    results, bad, _ = step(worker, *orders, forward=False)
    assert not bad
    assert "a" not in results.finished_recving
    finished, failed = results.finished_recving, results.failed_recving
    step(worker, later("a", [18], [2], last=False), forward=False)
    results, _, _ = step(worker, later("a", [], []), forward=False)
    _, more, more_failed = until_idle(worker)
    assert finished | results.finished_recving | more == {"a", "b"}
    assert failed | results.failed_recving | more_failed == {"a"}
    worker.shutdown()


def test_pieces_are_reported_when_all_are_done(place: tuple[Any, str]) -> None:
    copier, device = place
    caches = make_caches(device)
    worker = make_worker(caches, copier)
    step(worker, Save(1, [1, 2, 3], [1, 2, 3]), forward=False)
    kept = [caches[name][1:4].clone() for name in NAMES]
    for blocks, slots in (([8], [1]), ([9], [2])):
        results, _, _ = step(worker, later("a", blocks, slots, last=False), forward=False)
        assert not results.finished_recving
    step(worker)
    assert not until_idle(worker)[1]
    first, _, _ = step(worker, later("a", [10], [3]), later("called off", [], []))
    _, finished, failed = until_idle(worker)
    assert first.finished_recving | finished == {"a", "called off"}
    assert not failed
    for name, expected in zip(NAMES, kept, strict=True):
        assert torch.equal(caches[name][8:11], expected)
    assert not until_idle(worker)[1]
    worker.shutdown()


def test_orders_out_of_range_fail() -> None:
    worker = make_worker(make_caches())
    orders = [Save(1, [1], [SLOTS]), Save(2, [BLOCKS], [1]), Save(3, [1, 2], [1]), Save(4, [], [])]
    orders += [later("a", [-1], [1]), in_step([3], [-1])]
    results, bad, report = step(worker, *orders)
    assert (report.saved, report.failed) == ({4: 1}, {1: 1, 2: 1, 3: 1})
    assert results.failed_recving == results.finished_recving == {"a"}
    assert bad == {3}
    worker.shutdown()
    worker.shutdown()


def test_traffic_is_counted(place: tuple[Any, str]) -> None:
    copier, device = place
    worker = make_worker(make_caches(device), copier)
    assert worker.report() is None
    bytes_each = block_bytes(CONFIG)
    _, _, report = step(worker, Save(1, [1, 2, 3], [1, 2, 3]), forward=False)
    report.aggregate(until_idle(worker)[0])
    assert report.out.bytes == 3 * bytes_each
    assert report.out.seconds > 0
    assert report.out.beside == report.into.bytes == 0
    _, _, report = step(worker, in_step([8], [1]), in_step([9, 10], [2, 3]))
    report.aggregate(until_idle(worker)[0])
    assert report.into.bytes == 3 * bytes_each
    assert 0 < report.into.beside <= report.into.seconds
    assert report.out.bytes == 0
    worker.shutdown()


def test_time_beside_forward_passes_is_told_from_time_that_is_not() -> None:
    worker = make_worker(make_caches(), Slow)
    worker.begin_step(SwapOrders(saves=[Save(1, [1, 2], [1, 2])]))
    for name in IN_ORDER:
        worker.wait_for_layer_load(name)
    time.sleep(Slow.per_block * 3)
    worker.wait_for_save()
    traffic = SwapReport()
    while not traffic.saved:
        traffic.aggregate(step(worker, forward=False)[2])
    assert Slow.per_block * 2.9 < traffic.out.beside < traffic.out.seconds - Slow.per_block
    worker.shutdown()
