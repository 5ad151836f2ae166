"""The copier for a KV cache in main memory: one thread, whose link may be limited.

The thread takes only memory bandwidth from the forward pass that runs at the same time. It
releases the GIL while it copies, leaves the engine's core, and starts no OpenMP threads.
"""

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any

from caesura.scheduler.vllm.engine.swap.copier import Copier, Task
from caesura.scheduler.vllm.engine.swap.regions import Layer


class ThreadCopier(Copier):
    """Copies between main-memory buffers in one thread, which releases the GIL meanwhile.

    `clock` returns the time in seconds.
    """

    def __init__(
        self, layers: Sequence[Layer], slots: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(layers, slots)
        self._clock = clock
        self._pending: list[Task] = []  # in order of arrival
        self._finished: list[Task] = []
        self._changed = threading.Condition()
        self._closed = False
        self._begun = 0.0
        self._windows: deque[tuple[float, float]] = deque(maxlen=4096)  # of forward passes
        self._thread = threading.Thread(target=self._run, name="caesura-swap", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Record the begin of a step."""
        self._begun = self._clock()

    def submit(self, tasks: list[Task]) -> None:
        """Queue tasks; the thread starts at once, since the step does not write their blocks."""
        with self._changed:
            self._pending += tasks
            self._changed.notify_all()

    def wait_layer(self, layer: int) -> None:
        """Wait until every urgent load has copied this layer."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or all(t.layer > layer for t in self._pending if t.urgent)
            )

    def end(self, forward: bool) -> None:
        """Record the end of a step with a forward pass."""
        if forward:
            self._windows.append((self._begun, self._clock()))

    def poll(self) -> list[Task]:
        """Return the finished tasks with their times."""
        with self._changed:
            finished, self._finished = self._finished, []
        for task in finished:
            task.seconds = sum(end - start for start, end in task.marks)
            task.beside = sum(self._overlap(start, end) for start, end in task.marks)
        return finished

    def idle(self, seconds: float) -> None:
        """Wait until the thread has no task left, for at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._pending, seconds)

    def close(self) -> None:
        """Stop the thread after its current layer; wait for at most 5 seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=5)

    def copy(self, layer: int, task: Task) -> None:
        """Copy with memmove, which is fastest here and starts no OpenMP threads."""
        for source, target, size in self.moves(layer, task):
            ctypes.memmove(target, source, size)

    def _run(self) -> None:
        _roam()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._pending)
                if self._closed:
                    return
                task = _next(self._pending)
            start = self._clock()
            try:
                self.copy(task.layer, task)
            except Exception as error:
                task.error = error
            with self._changed:
                task.marks.append((start, self._clock()))
                if task.error is None:
                    task.bytes += self.block_bytes[task.layer] * len(task.order.blocks)
                    task.layer += 1
                if task.error is not None or task.layer == len(self.layers):
                    self._pending.remove(task)
                    self._finished.append(task)
                self._changed.notify_all()

    def _overlap(self, start: float, end: float) -> float:
        total = 0.0
        for begun, ended in reversed(self._windows):
            if ended <= start:
                break
            total += max(0.0, min(end, ended) - max(start, begun))
        return total


def _next(pending: list[Task]) -> Task:
    """Return the task to advance by a layer: the first in rank, or one that it depends on."""
    chosen = min(pending, key=lambda task: task.rank)
    while True:
        for earlier in pending:
            if earlier is chosen:
                return chosen
            if earlier.meets(chosen):
                chosen = earlier
                break


def _roam() -> None:
    """Allow this thread to run on the parent process's cores too.

    vLLM binds the engine's thread to a core through OpenMP's environment, and this thread inherits
    that. The parent process is not bound.
    """
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(0) | os.sched_getaffinity(os.getppid()))


LINK_KEY = "link_gb_per_second"
BACK_TO_BACK_SECONDS = 0.001
"""A copy that begins this soon after another began when that one ended: sleeps last too long."""


class ThrottledCopier(ThreadCopier):
    """Copies at most `bytes_per_second`, in both directions together.

    This is for experiments, and for a link that must be left to others. The limit acts on real
    copies: a copy counts as done when a link of that rate would have carried it. So the scheduler
    measures, learns and reacts as it does with a slow link.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        slots: int,
        bytes_per_second: float,
        clock: Callable[[], float] = time.perf_counter,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Create it; `clock` returns seconds, and `wait` blocks the copying thread for some."""
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0
        self._closing = threading.Event()
        self._wait = wait or self._closing.wait
        super().__init__(layers, slots, clock)

    def copy(self, layer: int, task: Task) -> None:
        """Copy the task's blocks in one layer, then wait until the link would have carried them."""
        now = self._clock()
        begun = self._free_at if 0 <= now - self._free_at < BACK_TO_BACK_SECONDS else now
        super().copy(layer, task)
        size = self.block_bytes[layer] * len(task.order.blocks)
        self._free_at = begun + size / self._bytes_per_second
        left = self._free_at - self._clock()
        if left > 0:
            self._wait(left)

    def close(self) -> None:
        """Stop the thread, without waiting for the link."""
        self._closing.set()
        super().close()


def throttled(
    options: Mapping[str, Any], on_cpu: bool
) -> Callable[[Sequence[Layer], int], Copier] | None:
    """Return what makes a throttled copier if the connector's options limit the link, else None.

    Raises `ValueError` for a limit that is no positive number, and for one on a GPU, whose copy
    engines cannot be limited.
    """
    given = options.get(LINK_KEY)
    if given is None:
        return None
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not isfinite(given) or given <= 0:
        raise ValueError(
            f"{LINK_KEY} must be a number above 0, in 10^9 bytes per second, got {given!r}"
        )
    if not on_cpu:
        raise ValueError(
            f"{LINK_KEY} limits copies of a KV cache in main memory only; leave it out on a GPU,"
            f" got {given!r}"
        )
    return partial(ThrottledCopier, bytes_per_second=given * 1e9)
