"""Copies that are slow do no harm, and copies that are wrong or come too late do not go unnoticed.

Sessions are swapped to the host in the real engine, and the whole KV cache on the device is wiped
before they come back: what they say next can only be right if all of it was loaded in time.
"""

import time
from collections.abc import Callable, Iterator

import pytest
from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group
from vllm.v1.request import RequestStatus

from caesura.scheduler.vllm.engine.swap.copier import Copier, Task
from tests.engine.exactness import PAUSES, Talk, begin, make_core, plan
from tests.engine.swapping import come_back, swap_out, swapping_all

from .core import Core

pytestmark = pytest.mark.engine

SESSIONS = 4


@pytest.fixture(scope="module", params=[512, 48], ids=["whole", "chunked"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    made = make_core(True, request.param, 0.05)
    with swapping_all(made):
        yield made
    made.close()


@pytest.fixture(scope="module")
def talks(core: Core) -> dict[str, Talk]:
    return {f"s{seed}": plan(core, 500 + seed) for seed in range(SESSIONS)}


@pytest.fixture(params=[True, False], ids=["in-step", "over-steps"])
def in_step(core: Core, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Loads join their step, or come three blocks at a time."""
    manager = core.scheduler.parts.manager
    budget = 1000 if request.param else 3
    monkeypatch.setattr(manager.planner.loads, "in_step", request.param)
    monkeypatch.setattr(manager.views, "link_blocks", lambda: budget)
    return bool(request.param)


@pytest.fixture
def copier(core: Core, in_step: bool) -> Iterator[Copier]:
    """What copies in the engine's worker; nothing that a test did to the cache is left behind."""
    found = get_kv_transfer_group()._worker._copier
    core.scheduler.reset_prefix_cache(reset_connector=True)
    yield found
    for name in list(core.scheduler.requests):
        core.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
    core.idle(50)
    found.idle(30.0)
    assert core.scheduler.requests == {}
    core.scheduler.reset_prefix_cache(reset_connector=True)


def slowly(copy: Callable[[int, Task], None], seconds: float) -> Callable[[int, Task], None]:
    def slow(layer: int, task: Task) -> None:
        time.sleep(seconds * len(task.order.blocks))
        copy(layer, task)

    return slow


def test_slow_copies_change_nothing(
    core: Core, copier: Copier, talks: dict[str, Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two milliseconds a block in each layer, beside steps that take about as long."""
    monkeypatch.setattr(copier, "copy", slowly(copier.copy, 0.002))
    assert all(come_back(core, copier, talks, PAUSES).values())


def test_a_request_of_other_weights_finds_no_copy(
    core: Core, copier: Copier, talks: dict[str, Talk]
) -> None:
    """Behind a change of weights, requests have another salt."""
    named = {f"kept-{name}": talk for name, talk in talks.items()}
    begin(core, named)
    core.run(named)
    swap_out(core, copier)
    for number, talk in enumerate(talks.values()):
        for salt in ("weights-1", None):
            name = f"asks-{number}-{salt}"
            core.add(name, talk.prompt, 1, salt=salt)
            core.run([name])
            assert (core.cached[name] > 0) == (salt is None), name


def test_control_wrong_copies_are_noticed(
    core: Core, copier: Copier, talks: dict[str, Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device was wiped: leaving out a load leaves zeros."""
    copy = copier.copy
    monkeypatch.setattr(copier, "copy", lambda layer, task: task.out and copy(layer, task))
    assert not any(come_back(core, copier, talks, 1).values())


def test_control_one_wrong_layer_is_noticed(
    core: Core, copier: Copier, talks: dict[str, Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copier.copy

    def all_but_one(layer: int, task: Task) -> None:
        if task.out or layer != 1:
            copy(layer, task)

    monkeypatch.setattr(copier, "copy", all_but_one)
    assert not all(come_back(core, copier, talks, 1).values())


def test_control_late_copies_are_noticed(
    core: Core,
    copier: Copier,
    talks: dict[str, Talk],
    in_step: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody waits for what a step loads for itself: only loads over steps are right even so."""
    copy = copier.copy
    slow = slowly(copy, 0.02)
    monkeypatch.setattr(
        copier, "copy", lambda layer, task: (copy if task.out else slow)(layer, task)
    )
    monkeypatch.setattr(copier, "wait_layer", lambda layer: None)
    right = come_back(core, copier, talks, 1)
    if in_step:
        assert not any(right.values())
    else:
        assert all(right.values())
