"""The copier for a KV cache on a GPU: side streams, pinned host memory, events.

At the begin of a step, the side streams wait for the work already in the compute stream. So they
see what earlier steps wrote, but do not wait for the step itself. The compute stream waits only
for loads that join its step, layer by layer. The CPU never waits: it polls the event of a copy.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.v1.kv_offload.cpu.host_register import host_register, host_unregister

from caesura.scheduler.vllm.engine.swap.copier import Copier, Task
from caesura.scheduler.vllm.engine.swap.regions import Layer, SwapUnavailable

POLL_SECONDS = 0.0002


class StreamCopier(Copier):
    """Copies with the GPU's copy engines, without work for the CPU or for kernels.

    Loads that a step waits for have a stream of their own, so that they overtake the others.
    `Task.marks` are the events at the task's begin and end.
    """

    def __init__(self, layers: Sequence[Layer], slots: int) -> None:
        super().__init__(layers, slots)
        self._device = layers[0].parts[0].device
        self._pinned: list[int] = []
        for host in self.host:
            # vLLM pins exactly these bytes and clears CUDA's error on failure. PyTorch rounds the
            # size up to a power of two.
            if not host_register(host.data_ptr(), host.nbytes):
                self.close()
                raise SwapUnavailable(
                    f"cannot pin {host.nbytes} bytes of host memory; lower host_gib"
                )
            self._pinned.append(host.data_ptr())
        low, _ = torch.cuda.Stream.priority_range()
        self._urgent = torch.cuda.Stream(self._device)
        self._load = torch.cuda.Stream(self._device, priority=low)
        self._save = torch.cuda.Stream(self._device, priority=low)
        self._pending: list[Task] = []  # in order of arrival
        self._later: list[Task] = []  # the pending tasks that are not launched yet
        self._layer_events: list[Any] = []  # of this step's urgent loads
        self._begun = self._mark(torch.cuda.current_stream(self._device))
        self._windows: deque[tuple[Any, Any]] = deque(maxlen=32)  # of forward passes

    def begin(self) -> None:
        """Mark the compute stream's position, which this step's copies wait for."""
        self._layer_events = []
        self._begun = self._mark(torch.cuda.current_stream(self._device))

    def submit(self, tasks: list[Task]) -> None:
        """Launch the urgent loads; the rest waits until the forward pass has been launched."""
        urgent = [task for task in tasks if task.urgent]
        later = [task for task in tasks if not task.urgent]
        self._pending += urgent + later
        self._later += later
        if not urgent:
            return
        blocks = sum(len(task.order.blocks) for task in urgent)
        for task in urgent:
            task.share = len(task.order.blocks) / blocks
            self._prepare(task, self._urgent)
        for layer in range(len(self.layers)):
            for task in urgent:
                self._advance(task, layer, self._urgent)
            self._layer_events.append(self._mark(self._urgent))
        for task in urgent:
            task.marks.append(self._layer_events[-1])

    def wait_layer(self, layer: int) -> None:
        """Make the compute stream wait for this layer's loads."""
        if self._layer_events:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._layer_events[layer])

    def end(self, forward: bool) -> None:
        """Launch the other tasks, beside the forward pass that has just been launched."""
        if forward:
            ended = self._mark(torch.cuda.current_stream(self._device))
            self._windows.append((self._begun, ended))
        later, self._later = self._later, []
        for task in later:
            stream = self._save if task.out else self._load
            self._prepare(task, stream)
            for layer in range(len(self.layers)):
                self._advance(task, layer, stream)
            task.marks.append(self._mark(stream))

    def poll(self) -> list[Task]:
        """Return the finished tasks with their times.

        A failed urgent load is returned at once: the compute stream waits for its launched part.
        Another failed load is returned later, since its launched part may still write to blocks.
        """
        finished: list[Task] = []
        pending: list[Task] = []
        for task in self._pending:
            launched = len(task.marks) == 2
            over = launched and (task.marks[1].query() or (task.urgent and task.error is not None))
            (finished if over else pending).append(task)
        self._pending = pending
        for task in finished:
            if task.error is None:
                self._measure(task)
        return finished

    def idle(self, seconds: float) -> None:
        """Poll until no task is left, for at most `seconds`; the engine has no other work."""
        until = time.monotonic() + seconds
        while any(not task.marks[1].query() for task in self._pending):
            if time.monotonic() >= until:
                return
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Wait until the copies have ended, then unpin the memory."""
        if self._pinned:
            torch.cuda.synchronize(self._device)
        for address in self._pinned:
            host_unregister(address)
        self._pinned = []

    def copy(self, layer: int, task: Task) -> None:
        """Launch all copies of a layer in one driver call, on the current stream."""
        moves = list(self.moves(layer, task))
        source, target, size = torch.tensor(moves, dtype=torch.int64).T.contiguous()
        ops.swap_blocks_batch(source, target, size)

    def _prepare(self, task: Task, stream: Any) -> None:
        """Make the stream wait for the step's begin and for earlier tasks that conflict."""
        stream.wait_event(self._begun)
        for earlier in self._pending:
            if earlier is task:
                break
            if len(earlier.marks) == 2 and earlier.meets(task):
                stream.wait_event(earlier.marks[1])
        task.marks.append(self._mark(stream))

    def _advance(self, task: Task, layer: int, stream: Any) -> None:
        if task.error is not None:
            return
        try:
            with torch.cuda.stream(stream):
                self.copy(layer, task)
        except Exception as error:
            task.error = error
        else:
            task.layer += 1
            task.bytes += self.block_bytes[layer] * len(task.order.blocks)

    def _measure(self, task: Task) -> None:
        begin, end = task.marks
        task.seconds = begin.elapsed_time(end) / 1e3 * task.share
        for begun, ended in self._windows:
            if not begun.query():
                continue
            start, stop = max(0.0, begun.elapsed_time(begin)), begun.elapsed_time(end)
            if ended.query():
                stop = min(stop, begun.elapsed_time(ended))
            task.beside += max(0.0, stop - start) / 1e3 * task.share

    @staticmethod
    def _mark(stream: Any) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event
