"""The engine's side of the process that predicts lengths: it asks without waiting.

A thread keeps the process, and has it predict the prompts that wait, a batch at a time. The engine
only appends to a queue of bounded length and looks into a dictionary. What goes wrong costs
predictions and nothing else.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from caesura.processes.worker import Worker, WorkerDied, WorkerFailed

logger = logging.getLogger(__name__)

MAX_WAITING = 256
"""The most prompts that wait to be sent; the oldest ones are dropped."""

MAX_BATCH = 32
"""The most prompts that are predicted together."""

MAX_ANSWERS = 4096
MAX_VALUES = 64
CLOSING_SECONDS = 5.0
MODULE = "caesura.scheduler.prompt_lengths.predictor"
FIRST_PROMPT = "the first prediction is slower than all others"

Text = Callable[[Sequence[int]], bytes]
"""Returns the text of tokens."""
Start = Callable[[], Awaitable[Worker]]
"""Starts a process whose `lengths_of(folder, prompts)` returns the lengths of every prompt."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the process, in seconds.

    A process that is not ready after `start`, or that leaves prompts unanswered for `answer`, is
    ended. It is started again after `back_off`, doubled with every restart, `restarts` times at
    most. A process that served for `healthy` seconds starts the count again.
    """

    start: float = 120.0
    answer: float = 10.0
    back_off: float = 1.0
    restarts: int = 5
    healthy: float = 600.0


@dataclass(slots=True)
class Counts:
    """Numbers of prompts asked about, answered and dropped, and of restarts of the process."""

    asked: int = 0
    answered: int = 0
    dropped: int = 0
    restarts: int = 0


class ProcessFailed(Exception):
    """The process died, hung or sent no lengths; the message says which."""


async def start_predictor() -> Worker:
    """Start the process that predicts; it sees no GPU, and its libraries use one thread."""
    apart = {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return await Worker.spawn(MODULE, environment={**os.environ, **apart})


class LengthProcess:
    """Predictions of the lengths of first segments, from a process of its own."""

    def __init__(
        self,
        folder: Path,
        text: Text,
        limits: Limits | None = None,
        *,
        start: Start = start_predictor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the process for a predictor's `folder` in a thread; `text` runs there too."""
        self._folder = folder
        self._text = text
        self._limits = limits or Limits()
        self._start = start
        self._clock = clock
        self._waiting: deque[tuple[str, Sequence[int]]] = deque()
        self._answers: OrderedDict[str, tuple[float, ...]] = OrderedDict()
        self.counts = Counts()
        self.failed = ""
        """Why no process will be started any more; empty while there may be one."""
        self._loop = asyncio.new_event_loop()
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="prompt-lengths", daemon=True)
        self._thread.start()

    # -- the engine's side -----------------------------------------------------------------------

    def ask(self, key: str, tokens: Sequence[int]) -> None:
        """Ask for the length of a session's first segment; never waits."""
        if self.failed:
            return
        self.counts.asked += 1
        self._waiting.append((key, tokens))
        if len(self._waiting) > MAX_WAITING:
            with contextlib.suppress(IndexError):  # the thread has taken the rest
                self._waiting.popleft()
                self.counts.dropped += 1
        self._tell(self._woken)

    def find(self, key: str) -> tuple[float, ...] | None:
        """Return the equally likely tokens of the session's first segment, or None so far."""
        return self._answers.get(key)

    def forget(self, key: str) -> None:
        """Drop the answer for a session."""
        self._answers.pop(key, None)

    def close(self) -> None:
        """End the process and the thread. Idempotent."""
        self.failed = self.failed or "closed"
        self._tell(self._closed)
        self._thread.join(timeout=CLOSING_SECONDS)

    def _tell(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(event.set)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._work_until_closed())

    async def _work_until_closed(self) -> None:
        working = asyncio.ensure_future(self._keep_serving())
        closed = asyncio.ensure_future(self._closed.wait())
        await asyncio.wait([working, closed], return_when=asyncio.FIRST_COMPLETED)
        for one in (working, closed):
            one.cancel()
        await asyncio.gather(working, closed, return_exceptions=True)

    async def _keep_serving(self) -> None:
        failures = 0
        while True:
            begun = self._clock()
            why = await self._serve()
            failures = 1 if self._clock() - begun > self._limits.healthy else failures + 1
            if failures > self._limits.restarts:
                self.failed = why
                self._waiting.clear()
                logger.warning(
                    "output lengths are not predicted from prompts any more: %s, after %d restarts",
                    why,
                    self._limits.restarts,
                )
                return
            if failures == 1:
                logger.warning("the predictor of output lengths is started again: %s", why)
            self.counts.restarts += 1
            await asyncio.sleep(self._limits.back_off * 2 ** (failures - 1))

    async def _serve(self) -> str:
        """Have one process predict until it fails; return why it failed."""
        limits, worker = self._limits, None
        keys: list[str] = []
        try:
            worker = await self._start()
            await self._predict(worker, [FIRST_PROMPT], limits.start, "was not ready after")
            while True:
                keys, prompts = await self._batch()
                found = await self._predict(worker, prompts, limits.answer, "answered nothing for")
                self._keep(keys, found)
                keys = []
        except (ProcessFailed, WorkerDied) as error:
            return str(error)
        except Exception as error:  # the thread must not end, and the engine goes on without
            return f"talking to it failed ({error!r:.200})"
        finally:
            self.counts.dropped += len(keys)
            if worker is not None:
                await worker.kill()

    async def _batch(self) -> tuple[list[str], list[str]]:
        """Wait for prompts; return the sessions and the texts of those that wait."""
        while not self._waiting:
            await self._woken.wait()
            self._woken.clear()
        keys: list[str] = []
        prompts: list[str] = []
        while self._waiting and len(keys) < MAX_BATCH:
            key, tokens = self._waiting.popleft()
            keys.append(key)
            prompts.append(self._text(tokens).decode(errors="replace"))
        return keys, prompts

    async def _predict(
        self, worker: Worker, prompts: list[str], seconds: float, late: str
    ) -> list[tuple[float, ...]]:
        """Return the lengths of every prompt; raises `ProcessFailed` and `WorkerDied`."""
        try:
            async with asyncio.timeout(seconds):
                said = await worker.call("lengths_of", folder=str(self._folder), prompts=prompts)
        except TimeoutError as error:
            raise ProcessFailed(f"it {late} {seconds:g} s") from error
        except WorkerFailed as error:
            raise ProcessFailed(f"it failed: {error!s:.300}") from error
        try:
            return [_tokens(each) for each, _ in zip(said, prompts, strict=True)]
        except (ValueError, TypeError) as error:
            raise ProcessFailed(f"it sent no lengths but {said!r:.80} ({error!r:.80})") from error

    def _keep(self, keys: Sequence[str], found: Sequence[tuple[float, ...]]) -> None:
        for key, tokens in zip(keys, found, strict=True):
            self.counts.answered += 1
            self._answers[key] = tokens
            if len(self._answers) > MAX_ANSWERS:
                with contextlib.suppress(KeyError):
                    self._answers.popitem(last=False)


def _tokens(values: Any) -> tuple[float, ...]:
    """Return ascending token counts; raises `ValueError` or `TypeError` for anything else."""
    tokens = tuple(sorted(float(value) for value in values))
    if not 1 <= len(tokens) <= MAX_VALUES or not 0 <= tokens[0] <= tokens[-1] < inf:
        raise ValueError(f"lengths must be 1 to {MAX_VALUES} finite numbers >= 0")
    return tokens
