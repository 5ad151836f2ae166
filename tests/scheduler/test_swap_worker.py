"""The worker's side of swapping: no engine, tensors made by hand, a GPU made of queues."""

from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from caesura.scheduler.vllm.engine.swap.messages import Save, SwapOrders, SwapReport
from caesura.scheduler.vllm.engine.swap.regions import block_bytes
from caesura.scheduler.vllm.engine.swap.streams import StreamCopier
from caesura.scheduler.vllm.engine.swap.threads import ThreadCopier

from .copying import (
    BLOCKS,
    CONFIG,
    IN_ORDER,
    LAYERS,
    NAMES,
    SLOTS,
    Stage,
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


@pytest.mark.parametrize("wait", [True, False])
def test_attention_waits_for_a_slow_load_and_would_miss_it_otherwise(wait: bool) -> None:
    caches, stage = make_caches(), Stage()
    worker = make_worker(caches, stage.copier)
    kept = {name: cache[3].clone() for name, cache in caches.items()}
    stage.allow(LAYERS)
    step(worker, Save(1, [3, 4], [0, 1]), forward=False)
    until_idle(worker)
    worker.begin_step(SwapOrders([in_step([8, 9], [0, 1])]))
    found: list[bool] = []
    for name in IN_ORDER:
        if wait:
            Timer(0.01, stage.allow, [1]).start()
            worker.wait_for_layer_load(name)
        found.append(torch.equal(caches[name][8], kept[name]))
    if not wait:
        stage.allow(LAYERS)
    worker.wait_for_save()
    assert found == [wait] * LAYERS
    assert all(torch.equal(caches[name][8], kept[name]) for name in NAMES)
    worker.shutdown()


def test_a_corrupted_copy_is_noticed_here() -> None:
    caches = make_caches()
    worker = make_worker(caches, Zeroing)
    step(worker, Save(1, [3], [0]), forward=False)
    step(worker, in_step([8], [0]))
    assert not caches[NAMES[0]][8].any()
    worker.shutdown()


def test_saves_go_on_beyond_their_step_and_are_confirmed_when_done() -> None:
    stage = Stage()
    worker = make_worker(make_caches(), stage.copier)
    _, _, report = step(worker, Save(7, list(range(8)), list(range(8))))
    assert not report.saved
    stage.allow(LAYERS - 1)
    assert not step(worker, forward=False)[2].saved
    stage.allow(1)
    assert until_idle(worker)[0].saved == {7: 1}
    worker.shutdown()


def test_a_step_without_a_forward_pass_waits_a_little() -> None:
    stage = Stage()
    worker = make_worker(make_caches(), stage.copier)
    assert not step(worker, Save(2, [1], [1]), forward=False)[2].saved
    stage.allow(LAYERS)
    assert until_idle(worker)[0].saved == {2: 1}
    worker.shutdown()

    class Patient(ThreadCopier):
        def idle(self, seconds: float) -> None:
            super().idle(seconds + 60)

    worker = make_worker(make_caches(), Patient)
    assert step(worker, Save(1, [1], [1]), forward=False)[2].saved == {1: 1}
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


SAVES, LOADS = ([(layer, what) for layer in range(LAYERS)] for what in ("save", "load"))


@pytest.mark.parametrize(
    ("slot", "copied"), [(1, [SAVES[0], *LOADS, *SAVES[1:]]), (5, [*SAVES, *LOADS])]
)
def test_a_load_that_is_waited_for_goes_first_unless_its_slots_are_being_saved(
    slot: int, copied: list[tuple[int, str]]
) -> None:
    caches, stage = make_caches(), Stage()
    worker = make_worker(caches, stage.copier)
    stage.allow(LAYERS)
    step(worker, Save(1, [1], [1]))
    until_idle(worker)
    step(worker, Save(2, [2, 5], [2, 5]))
    stage.begun(LAYERS + 1)
    worker.begin_step(SwapOrders([in_step([9], [slot])]))
    stage.allow(2 * LAYERS)
    for name in IN_ORDER:
        worker.wait_for_layer_load(name)
    worker.wait_for_save()
    until_idle(worker)
    assert stage.log == [*SAVES, *copied]
    assert all(torch.equal(cache[9], cache[slot]) for cache in caches.values())
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
    stage = Stage()
    worker = make_worker(make_caches(), stage.copier)
    worker.begin_step(SwapOrders(saves=[Save(1, [1, 2], [1, 2])]))
    for name in IN_ORDER:
        worker.wait_for_layer_load(name)
    stage.begun(1)
    for now in (2, 7):
        stage.now = now
        stage.allow(1)
        stage.begun(1)
    stage.now = 10
    worker.wait_for_save()
    stage.now = 14
    stage.allow(1)
    out = until_idle(worker)[0].out
    assert (out.seconds, out.beside) == (14, 10)
    worker.shutdown()
