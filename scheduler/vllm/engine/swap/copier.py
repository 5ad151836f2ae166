"""The interface of copiers, which copy blocks between KV cache and host during forward passes.

A copier (`threads` for main memory, `streams` for GPUs) takes tasks and copies them layer by
layer, in whole blocks. Loads that a step waits for go first, then other loads, then saves. A task
never overtakes an earlier one that writes what it reads or writes. So a load reads the result of
an earlier save to the same slots, and no save overwrites a slot that is still read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from caesura.scheduler.vllm.engine.swap.messages import Load, Save
from caesura.scheduler.vllm.engine.swap.regions import Layer


@dataclass(eq=False, slots=True)
class Task:
    """One order in progress, and its outcome."""

    order: Save | Load
    layer: int = 0  # index of the next layer to copy
    bytes: int = 0
    seconds: float = 0.0
    beside: float = 0.0
    error: Exception | None = None
    share: float = 1.0  # of the time between the marks, below 1 if tasks are interleaved
    marks: list[Any] = field(default_factory=list)  # times of the copies, in the copier's format
    blocks: frozenset[int] = field(init=False)
    slots: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks, self.slots = frozenset(self.order.blocks), frozenset(self.order.slots)

    @property
    def out(self) -> bool:
        """Whether the task copies from the KV cache to the host."""
        return isinstance(self.order, Save)

    @property
    def urgent(self) -> bool:
        """Whether the current step waits for the task."""
        return isinstance(self.order, Load) and self.order.in_step

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key; urgent loads advance together, since a layer waits for all of them."""
        return (0, self.layer) if self.urgent else (2 if self.out else 1, 0)

    def meets(self, other: "Task") -> bool:
        """Return whether one task writes what the other reads or writes."""
        if not (self.out and other.out) and not self.blocks.isdisjoint(other.blocks):
            return True
        return (self.out or other.out) and not self.slots.isdisjoint(other.slots)


class Copier(ABC):
    """Takes tasks and returns them when they are finished. One thread calls all methods.

    Calls per step: `begin`, `submit`, `wait_layer` for each layer, `join`, `end`, `poll`.
    """

    def __init__(self, layers: Sequence[Layer], slots: int) -> None:
        self.layers = layers
        self.host = [torch.empty((slots, layer.block_bytes), dtype=torch.uint8) for layer in layers]
        self.block_bytes = [layer.block_bytes for layer in layers]

    @abstractmethod
    def begin(self) -> None:
        """Mark the begin of a step."""

    @abstractmethod
    def submit(self, tasks: list[Task]) -> None:
        """Start or queue a step's tasks; `tasks` holds the urgent ones first."""

    @abstractmethod
    def wait_layer(self, layer: int) -> None:
        """Delay this layer until its urgent loads have arrived."""

    @abstractmethod
    def end(self, forward: bool) -> None:
        """Mark the end of a step; `forward` is whether it had a forward pass."""

    @abstractmethod
    def poll(self) -> list[Task]:
        """Return the tasks that have finished since the last call, without waiting."""

    @abstractmethod
    def idle(self, seconds: float) -> None:
        """Wait until no task is left, for at most `seconds`."""

    @abstractmethod
    def close(self) -> None:
        """Stop copying and release the memory."""

    @abstractmethod
    def copy(self, layer: int, task: Task) -> None:
        """Copy the task's blocks in one layer; tests put delays and failures here."""

    def join(self) -> None:
        """Wait for all urgent loads as `wait_layer` does for those of one layer."""
        self.wait_layer(len(self.layers) - 1)

    def moves(self, layer: int, task: Task) -> Iterator[tuple[int, int, int]]:
        """Yield the task's copies in one layer as (source address, target address, bytes)."""
        host, column = self.host[layer], 0
        for part in self.layers[layer].parts:
            size, step = part.shape[1], part.stride(0)
            dense = size == step == host.stride(0)
            here, there = part.data_ptr(), host.data_ptr() + column
            for block, slot, count in _runs(task.order, dense):
                device, kept = here + block * step, there + slot * host.stride(0)
                yield (device, kept, count * size) if task.out else (kept, device, count * size)
            column += size


def _runs(order: Save | Load, dense: bool) -> Iterator[tuple[int, int, int]]:
    """Yield (block, slot, count); `dense` joins pairs that are adjacent on both sides."""
    first = last = None
    count = 0
    for block, slot in zip(order.blocks, order.slots, strict=True):
        if dense and last == (block - 1, slot - 1):
            count += 1
        else:
            if first is not None:
                yield (*first, count)
            first, count = (block, slot), 1
        last = (block, slot)
    if first is not None:
        yield (*first, count)
