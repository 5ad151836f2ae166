"""Sessions whose KV cache goes to the host, while all that the device holds is wiped."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from caesura.intercept.kv.views import Decision
from caesura.scheduler.vllm.engine.swap.copier import Copier
from tests.engine.core import Core
from tests.engine.exactness import Talk, answer, begin, said_as_planned

RUNS = itertools.count()


class SwapAll:
    """Everything is swapped, whatever that costs."""

    name = "swap-all"
    write_behind = False
    every_step = True

    def decide(self, paused: Any, step: Any) -> list[Decision]:
        return [Decision(one.key, "swap") for one in paused if not one.returned]

    def victims(self, paused: Any, step: Any, needed: int, forced: bool) -> list[tuple[str, int]]:
        return []


@contextmanager
def loads_pay(core: Core) -> Iterator[None]:
    """Load what is on the host, however slow a busy machine makes copies look."""
    manager = core.scheduler.parts.manager
    learn = manager._rates.learn

    def learn_and_load() -> None:
        learn()
        manager.planner.pays = True

    manager._rates.learn = learn_and_load
    try:
        yield
    finally:
        manager._rates.learn = learn


@contextmanager
def swapping_all(core: Core) -> Iterator[None]:
    """Swap all that pauses, and load it again."""
    manager = core.scheduler.parts.manager
    handling, manager.handling = manager.handling, SwapAll()
    try:
        with loads_pay(core):
            yield
    finally:
        manager.handling = handling


def until_swapped(core: Core) -> None:
    """Step until nothing of the paused sessions is on the devices any more."""
    scheduler, manager = core.scheduler, core.scheduler.parts.manager
    scheduler.has_requests = lambda: True  # an engine in which all are paused would not step
    for _ in range(3000):
        core.idle(1)
        held = any(manager.paused_kvs.blocks.of(kv) for kv in manager.paused_kvs.values())
        if not held and not manager.planner.busy:
            break
    else:
        raise AssertionError("not swapped")
    del scheduler.has_requests


def swap_out(core: Core, copier: Copier) -> None:
    """Step until all is on the host; then wipe the device."""
    until_swapped(core)
    assert core.scheduler.reset_prefix_cache()
    for layer in copier.layers:
        for part in layer.parts:
            part.zero_()


def come_back(core: Core, copier: Copier, talks: dict[str, Talk], turns: int) -> dict[str, bool]:
    """Run so many turns over swaps; tell which of the sessions say what they should in the last."""
    run = next(RUNS)
    talks = {f"{run}-{name}": talk for name, talk in talks.items()}
    begin(core, talks)
    core.run(talks)
    for turn in range(turns):
        said_as_planned(core, talks, turn)
        swap_out(core, copier)
        answer(core, talks, turn)
        core.run(talks)
        for name in talks:
            assert core.reports[name]["resume"]["loaded_tokens"] > 0, name
    return {name: core.said[name] == talk.said[turns] for name, talk in talks.items()}
