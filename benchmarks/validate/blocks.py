"""The simulator with blocks of another size.

It counts in blocks of 16 tokens, as vLLM does on GPUs; vLLM's attention on the CPU takes multiples
of 32 only. The size is a constant of the simulator's modules, so that it is exchanged there.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import caesura.scheduler.sim.engine as engine
from caesura.scheduler.sim.engine.connectors import SPEC


@contextmanager
def blocks_of(tokens: int) -> Iterator[None]:
    """Have simulations in this process count in blocks of so many tokens."""
    spec = replace(SPEC, block_size=tokens)
    wanted = {"BLOCK_TOKENS": tokens, "SPEC": spec, "PLANNED_BYTES": spec.page_size_bytes}
    before: list[tuple[Any, str, Any]] = []
    try:
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{engine.__name__}."):
                for constant in wanted.keys() & vars(module).keys():
                    before.append((module, constant, getattr(module, constant)))
                    setattr(module, constant, wanted[constant])
        yield
    finally:
        for module, constant, value in before:
            setattr(module, constant, value)
