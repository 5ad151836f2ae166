"""A GPU made of queues: what CUDA promises about streams and events, and not a bit more.

Work is done at some time after it was launched, by any stream that can go on, at random. A copy
that is not ordered behind what it needs is therefore seen by some seed.
"""

import ctypes
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class Gpu:
    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.clock = 0.0
        self.streams: list[Stream] = []
        self.compute = Stream(self)
        self.current = self.compute
        self.refuse_pinning = False
        self.pinned: set[int] = set()

    def advance(self, most: int) -> None:
        """Let up to so many things happen."""
        for _ in range(most):
            ready = [stream for stream in self.streams if stream.ready]
            if not ready:
                return
            self.clock += 1.0
            self.random.choice(ready).work.popleft()[1]()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from caesura.scheduler.vllm.engine.swap import streams

        cuda = torch.cuda
        stream = lambda device=None, priority=0: Stream(self)  # noqa: E731
        stream.priority_range = lambda: (0, -5)  # type: ignore[attr-defined]
        monkeypatch.setattr(cuda, "Stream", stream)
        monkeypatch.setattr(cuda, "Event", lambda enable_timing=False: Event(self))
        monkeypatch.setattr(cuda, "current_stream", lambda device=None: self.current)
        monkeypatch.setattr(cuda, "stream", self.on)
        monkeypatch.setattr(cuda, "synchronize", lambda device=None: self.advance(1 << 30))
        monkeypatch.setattr(streams, "ops", SimpleNamespace(swap_blocks_batch=self.copy))
        monkeypatch.setattr(streams, "host_register", self.pin)
        monkeypatch.setattr(streams, "host_unregister", self.pinned.discard)

    @contextmanager
    def on(self, stream: "Stream") -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def copy(self, source: Any, target: Any, size: Any) -> None:
        moves = list(zip(target.tolist(), source.tolist(), size.tolist(), strict=True))
        self.random.shuffle(moves)
        for move in moves:
            self.current.launch(lambda move=move: ctypes.memmove(*move))

    def pin(self, address: int, size: int) -> bool:
        if not self.refuse_pinning or len(self.pinned) < 1:
            self.pinned.add(address)
            return True
        return False


class Stream:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.work: deque[tuple[Event | None, Callable[[], Any]]] = deque()
        gpu.streams.append(self)

    @property
    def ready(self) -> bool:
        return bool(self.work) and (self.work[0][0] is None or self.work[0][0].done)

    def launch(self, work: Callable[[], Any]) -> None:
        self.work.append((None, work))

    def wait_event(self, event: "Event") -> None:
        if event.recorded:
            self.work.append((event, lambda: None))


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.recorded, self.done, self.time = gpu, False, False, 0.0

    def record(self, stream: Stream) -> None:
        assert not self.recorded, "the model knows events that are recorded once"
        self.recorded = True
        stream.launch(self._happen)

    def _happen(self) -> None:
        self.done, self.time = True, self.gpu.clock

    def query(self) -> bool:
        self.gpu.advance(self.gpu.random.randrange(3))
        return self.done

    def elapsed_time(self, other: "Event") -> float:
        assert self.done and other.done
        return other.time - self.time
