"""A limited link: real copies that take as long as the link would, on a made-up clock."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from caesura.scheduler.vllm.engine.swap.messages import Save
from caesura.scheduler.vllm.engine.swap.regions import Layer, block_bytes
from caesura.scheduler.vllm.engine.swap.threads import (
    BACK_TO_BACK_SECONDS,
    ThrottledCopier,
    throttled,
)

from .copying import CONFIG, NAMES, in_step, make_caches, make_worker, step, until_idle

RATE = 1e6


class LateSleeper:
    """A clock that only waits advance, each by a little more than was asked for."""

    def __init__(self, late: float = 0.0) -> None:
        self.now, self._late = 0.0, late
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds + self._late

    def copier(self) -> Callable[[Sequence[Layer], int], ThrottledCopier]:
        """Return a factory of copiers that go by this clock."""
        return partial(
            ThrottledCopier, bytes_per_second=RATE, clock=lambda: self.now, wait=self.wait
        )


def test_a_copy_takes_as_long_as_the_link_would_and_is_whole() -> None:
    caches, time = make_caches(), LateSleeper()
    worker = make_worker(caches, time.copier())
    kept = {name: cache[3].clone() for name, cache in caches.items()}
    _, _, report = step(worker, Save(1, [3, 4], [0, 1]))
    report.aggregate(until_idle(worker)[0])
    assert report.out.seconds == pytest.approx(2 * block_bytes(CONFIG) / RATE)
    step(worker, in_step([8, 9], [0, 1]))
    assert all(torch.equal(caches[name][8], kept[name]) for name in NAMES)
    assert time.now == pytest.approx(4 * block_bytes(CONFIG) / RATE)
    worker.shutdown()


def test_sleeps_that_last_too_long_do_not_slow_the_link() -> None:
    late = BACK_TO_BACK_SECONDS / 2
    caches, time = make_caches(), LateSleeper(late)
    worker = make_worker(caches, time.copier())
    for number in range(5):
        step(worker, Save(number, [number], [number]))
        until_idle(worker)
    assert time.now == pytest.approx(5 * block_bytes(CONFIG) / RATE + late)
    worker.shutdown()


def test_an_idle_link_saves_nothing_up() -> None:
    caches, time = make_caches(), LateSleeper()
    worker = make_worker(caches, time.copier())
    step(worker, Save(1, [1], [1]))
    until_idle(worker)
    time.now += 100.0
    step(worker, Save(2, [2], [2]))
    until_idle(worker)
    assert time.now == pytest.approx(100.0 + 2 * block_bytes(CONFIG) / RATE)
    worker.shutdown()


def test_a_shutdown_does_not_wait_for_the_link() -> None:
    worker = make_worker(make_caches(), partial(ThrottledCopier, bytes_per_second=1.0))
    step(worker, Save(1, list(range(8)), list(range(8))))
    copier = worker._copier
    assert isinstance(copier, ThrottledCopier)
    worker.shutdown()
    assert not copier._thread.is_alive()


def test_the_option_makes_the_copier() -> None:
    assert throttled({"host_gib": 4.0}, on_cpu=True) is None
    made = throttled({"link_gb_per_second": 0.5}, on_cpu=True)
    assert made is not None
    worker = make_worker(make_caches(), made)
    assert isinstance(worker._copier, ThrottledCopier)
    worker.shutdown()


@pytest.mark.parametrize("given", [0, -1.0, True, "fast", float("nan"), float("inf")])
def test_a_wrong_limit_is_named(given: Any) -> None:
    with pytest.raises(ValueError, match=r"link_gb_per_second must be .* got"):
        throttled({"link_gb_per_second": given}, on_cpu=True)


def test_a_limit_on_a_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="leave it out on a GPU, got 2"):
        throttled({"link_gb_per_second": 2}, on_cpu=False)
