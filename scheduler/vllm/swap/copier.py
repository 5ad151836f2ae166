"""Copying blocks between the KV cache and host memory, beside the forward pass: the interface.

Copiers (`threads` for main memory, `streams` for GPUs) take whole tasks and copy them layer by
layer, whole blocks only. Loads that a step waits for go first, then other loads, then saves; but a
task never overtakes an earlier one that writes what it reads or writes. So a load finds what an
unfinished save of the same slots leaves, and a slot is not saved to while it is still read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from caesura.scheduler.vllm.swap.messages import Load, Save
from caesura.scheduler.vllm.swap.regions import Layer


@dataclass(eq=False, slots=True)
class Task:
    """One order on its way, and what became of it."""

    order: Save | Load
    layer: int = 0  # the layers before this one are copied
    bytes: int = 0
    seconds: float = 0.0
    beside: float = 0.0
    error: Exception | None = None
    share: float = 1.0  # of the time between its marks, if others are copied in turns with it
    marks: list[Any] = field(default_factory=list)  # when it was copied, in a copier's own way
    blocks: frozenset[int] = field(init=False)
    slots: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks, self.slots = frozenset(self.order.blocks), frozenset(self.order.slots)

    @property
    def out(self) -> bool:
        """Whether this goes from the KV cache to the host."""
        return isinstance(self.order, Save)

    @property
    def urgent(self) -> bool:
        """Whether the step at hand waits for it."""
        return isinstance(self.order, Load) and self.order.in_step

    @property
    def rank(self) -> tuple[int, int]:
        """What goes first; urgent loads advance together, since a layer waits for all of them."""
        return (0, self.layer) if self.urgent else (2 if self.out else 1, 0)

    def meets(self, other: "Task") -> bool:
        """Whether one writes what the other reads or writes, so that their order matters."""
        if not (self.out and other.out) and not self.blocks.isdisjoint(other.blocks):
            return True
        return (self.out or other.out) and not self.slots.isdisjoint(other.slots)


class Copier(ABC):
    """What copies: tasks in, finished tasks out. All methods are for one thread.

    Per step: `begin`, `submit`, `wait_layer` for each layer that runs, `join`, `end`, `poll`.
    """

    def __init__(self, layers: Sequence[Layer], slots: int) -> None:
        self.layers = layers
        self.host = [torch.empty((slots, layer.block_bytes), dtype=torch.uint8) for layer in layers]
        self.block_bytes = [layer.block_bytes for layer in layers]

    @abstractmethod
    def begin(self) -> None:
        """Take note that a step begins."""

    @abstractmethod
    def submit(self, tasks: list[Task]) -> None:
        """Take a step's tasks, the urgent ones first."""

    @abstractmethod
    def wait_layer(self, layer: int) -> None:
        """See to it that this layer does not run before its urgent loads are there."""

    @abstractmethod
    def end(self, forward: bool) -> None:
        """Take note that a step is over, which had a forward pass or not."""

    @abstractmethod
    def poll(self) -> list[Task]:
        """Hand over the tasks that are finished, without waiting for any."""

    @abstractmethod
    def idle(self, seconds: float) -> None:
        """Wait until nothing is left to do, but no longer than this."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and let go of the memory."""

    @abstractmethod
    def copy(self, layer: int, task: Task) -> None:
        """Copy the task's blocks in one layer; tests put delays and failures here."""

    def join(self) -> None:
        """Wait for all urgent loads as `wait_layer` does for those of one layer."""
        self.wait_layer(len(self.layers) - 1)

    def moves(self, layer: int, task: Task) -> Iterator[tuple[int, int, int]]:
        """Yield the task's copies in one layer: source and target address, bytes."""
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
    """Yield (block, slot, count), joining neighbours that are so on both sides if they touch."""
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
