"""The simulator's modules, with blocks of another size and a clock that others may read.

It counts in blocks of 16 tokens, as vLLM does on GPUs; vLLM's attention on the CPU takes multiples
of 32 only. The size is a constant of the simulator's modules, so that it is exchanged there.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import caesura.scheduler.sim.engine as engine
from caesura.scheduler.sim.engine.clock import Clock
from caesura.scheduler.sim.engine.connectors import SPEC


@contextmanager
def exchanged(block_tokens: int, clock: Clock) -> Iterator[None]:
    """Have one simulation in this process count in such blocks, and go by this clock."""
    spec = replace(SPEC, block_size=block_tokens)
    wanted = {
        "BLOCK_TOKENS": block_tokens,
        "SPEC": spec,
        "PLANNED_BYTES": spec.page_size_bytes,
    }
    rooms = {name: module for name, module in sys.modules.items() if _inside(name)}
    before: list[tuple[Any, str, Any]] = []

    def exchange(module: Any, name: str, value: Any) -> None:
        before.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    try:
        for module in rooms.values():
            for name in wanted.keys() & vars(module).keys():
                exchange(module, name, wanted[name])
        exchange(rooms[f"{engine.__name__}.run"], "Clock", lambda: clock)
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)


def _inside(name: str) -> bool:
    return name.startswith(f"{engine.__name__}.")
