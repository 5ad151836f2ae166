"""The copier for a KV cache on a GPU: side streams, pinned host memory, events.

The side streams wait for the compute stream as it stands when a step begins, so that they see what
earlier steps have written and zeroed, and not for the step itself. The compute stream waits only
for loads that join its step, layer by layer. The processor waits for nothing: whether a copy is
there, its event is asked.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.v1.kv_offload.cpu.host_register import host_register, host_unregister

from caesura.scheduler.vllm.swap.copier import Copier, Task
from caesura.scheduler.vllm.swap.regions import Layer, SwapUnavailable

POLL_SECONDS = 0.0002


class StreamCopier(Copier):
    """Copies by the GPU's own engines, which neither processor nor kernels take part in.

    Loads that a step waits for have a stream of their own, so that they overtake the others.
    `Task.marks` are the events at its begin and its end.
    """

    def __init__(self, layers: Sequence[Layer], slots: int) -> None:
        super().__init__(layers, slots)
        self._device = layers[0].parts[0].device
        self._pinned: list[int] = []
        for host in self.host:
            # vLLM's pinning registers exactly these bytes, where PyTorch's rounds up to a power of
            # two, and it clears CUDA's error if that fails.
            if not host_register(host.data_ptr(), host.nbytes):
                self.close()
                raise SwapUnavailable(f"{host.nbytes} bytes of host memory cannot be pinned")
            self._pinned.append(host.data_ptr())
        low, _ = torch.cuda.Stream.priority_range()
        self._urgent = torch.cuda.Stream(self._device)
        self._load = torch.cuda.Stream(self._device, priority=low)
        self._save = torch.cuda.Stream(self._device, priority=low)
        self._pending: list[Task] = []  # in order of arrival
        self._later: list[Task] = []  # of those, what is not launched yet
        self._layer_events: list[Any] = []  # of this step's urgent loads
        self._begun = self._mark(torch.cuda.current_stream(self._device))
        self._windows: deque[tuple[Any, Any]] = deque(maxlen=32)  # of forward passes

    def begin(self) -> None:
        """Mark where the compute stream stands, which copies of this step will wait for."""
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
        """Let the compute stream wait for this layer's loads."""
        if self._layer_events:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._layer_events[layer])

    def end(self, forward: bool) -> None:
        """Launch what does not hurry, beside the forward pass that has just been launched."""
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
        """Hand over what is finished, measured.

        A load that failed is told at once if its step waits for it: the compute stream is behind
        what was launched of it. Another may still be writing to blocks, which must stay until then.
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
        """Ask now and then whether anything is left; the engine has nothing else to do."""
        until = time.monotonic() + seconds
        while any(not task.marks[1].query() for task in self._pending):
            if time.monotonic() >= until:
                return
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Let copies end, then unpin the memory."""
        if self._pinned:
            torch.cuda.synchronize(self._device)
        for address in self._pinned:
            host_unregister(address)
        self._pinned = []

    def copy(self, layer: int, task: Task) -> None:
        """Hand the driver all copies of a layer in one call, on the current stream."""
        moves = list(self.moves(layer, task))
        source, target, size = torch.tensor(moves, dtype=torch.int64).T.contiguous()
        ops.swap_blocks_batch(source, target, size)

    def _prepare(self, task: Task, stream: Any) -> None:
        """Order a task behind the step's begin, and behind earlier ones that it meets."""
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
