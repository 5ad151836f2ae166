"""The engine's side of the process that predicts lengths: it asks without waiting.

A thread starts the process, writes to it and reads from it. The engine only appends to a queue of
bounded length and looks into a dictionary. What goes wrong costs predictions and nothing else.
"""

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MAX_WAITING = 256
"""The most prompts that wait to be sent; the oldest ones are dropped."""

MAX_IN_FLIGHT = 64
MAX_ANSWERS = 4096
MAX_LINE_BYTES = 2**16
MAX_VALUES = 64
CLOSING_SECONDS = 5.0

Text = Callable[[Sequence[int]], bytes]
"""Returns the text of tokens."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the process, in seconds.

    A process that is not ready after `start`, or that leaves a prompt unanswered for `answer`, is
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
    """The process died, hung or sent no answers; the message says which."""


@dataclass(slots=True)
class _Exchange:
    """The state of one running process: prompts in flight, and what is partly sent or read."""

    child: "subprocess.Popen[bytes]"
    begun: float
    ready: bool = False
    number: int = 0
    sent: "OrderedDict[int, tuple[str, float]]" = field(default_factory=OrderedDict)
    unsent: bytes = b""
    unread: bytes = b""


class LengthProcess:
    """Predictions of the lengths of first segments, from a process of its own."""

    def __init__(
        self,
        command: Sequence[str],
        text: Text,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the process of a `command` in a thread; `text` runs in that thread too."""
        self._command = list(command)
        self._text = text
        self._limits = limits or Limits()
        self._clock = clock
        self._waiting: deque[tuple[str, Sequence[int]]] = deque()
        self._answers: OrderedDict[str, tuple[float, ...]] = OrderedDict()
        self.counts = Counts()
        self.failed = ""
        """Why no process will be started any more; empty while there may be one."""
        self._closed = threading.Event()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
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
        with contextlib.suppress(BlockingIOError, OSError):  # woken already, or closed
            os.write(self._wake, b"!")

    def find(self, key: str) -> tuple[float, ...] | None:
        """Return the equally likely tokens of the session's first segment, or None so far."""
        return self._answers.get(key)

    def forget(self, key: str) -> None:
        """Drop the answer for a session."""
        self._answers.pop(key, None)

    def close(self) -> None:
        """End the process and the thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        self.failed = self.failed or "closed"
        with contextlib.suppress(OSError):
            os.write(self._wake, b"!")
        self._thread.join(timeout=CLOSING_SECONDS)
        if not self._thread.is_alive():
            os.close(self._wake)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            begun = self._clock()
            why = self._serve()
            if self._closed.is_set():
                break
            failures = 1 if self._clock() - begun > self._limits.healthy else failures + 1
            if failures > self._limits.restarts:
                self.failed = why
                self._waiting.clear()
                logger.warning(
                    "output lengths are not predicted from prompts any more: %s, after %d restarts",
                    why,
                    self._limits.restarts,
                )
                break
            if failures == 1:
                logger.warning("the predictor of output lengths is started again: %s", why)
            self.counts.restarts += 1
            self._closed.wait(self._limits.back_off * 2 ** (failures - 1))
        os.close(self._woken)

    def _serve(self) -> str:
        """Run one process until it fails or all is closed; return why it failed."""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        try:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment | {"TOKENIZERS_PARALLELISM": "false"},
                start_new_session=True,  # Ctrl-C is for the engine, which then ends the process
            )
        except OSError as error:
            return f"it cannot be started ({error})"
        assert child.stdin is not None and child.stdout is not None
        os.set_blocking(child.stdin.fileno(), False)
        os.set_blocking(child.stdout.fileno(), False)
        state = _Exchange(child, self._clock())
        try:
            while not self._closed.is_set():
                self._turn(state)
        except ProcessFailed as error:
            return str(error)
        except Exception as error:  # the thread must not end, and the engine goes on without
            return f"talking to it failed ({error!r:.200})"
        finally:
            self.counts.dropped += len(state.sent)
            child.kill()
            with contextlib.suppress(OSError):
                child.stdin.close()
            child.stdout.close()
            child.wait()
        return "closed"

    def _turn(self, state: _Exchange) -> None:
        """Wait for something to do, and do it; raises `ProcessFailed`."""
        child = state.child
        assert child.stdin is not None and child.stdout is not None
        if state.ready:
            self._fill(state)
        into = [child.stdin] if state.unsent else []
        oldest = next(iter(state.sent.values()))[1] if state.sent else inf
        limit = oldest + self._limits.answer if state.ready else state.begun + self._limits.start
        wait = max(0.0, min(limit - self._clock(), 60.0))
        outof: list[Any] = [child.stdout, self._woken]
        readable, writable, _ = select.select(outof, into, [], wait)
        if self._woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 2**12)
        if writable:
            self._write(state)
        if child.stdout in readable:
            self._read(state)
        elif not readable and not writable and self._clock() >= limit:
            what = f"answered nothing for {self._limits.answer:g} s"
            late = f"was not ready after {self._limits.start:g} s"
            raise ProcessFailed(f"it {what if state.ready else late}")

    def _fill(self, state: _Exchange) -> None:
        """Move prompts that wait to what is sent."""
        while self._waiting and len(state.sent) < MAX_IN_FLIGHT:
            key, tokens = self._waiting.popleft()
            state.number += 1
            prompt = self._text(tokens).decode(errors="replace")
            line = json.dumps({"id": state.number, "prompt": prompt})
            state.unsent += line.encode() + b"\n"
            state.sent[state.number] = key, self._clock()

    def _write(self, state: _Exchange) -> None:
        assert state.child.stdin is not None
        try:
            count = os.write(state.child.stdin.fileno(), state.unsent)
        except BlockingIOError:
            return
        except OSError as error:
            raise ProcessFailed(f"it takes no prompts ({error})") from error
        state.unsent = state.unsent[count:]

    def _read(self, state: _Exchange) -> None:
        assert state.child.stdout is not None
        piece = os.read(state.child.stdout.fileno(), 2**16)
        if not piece:
            state.child.wait()
            raise ProcessFailed(f"it ended with code {state.child.returncode}")
        *lines, state.unread = (state.unread + piece).split(b"\n")
        if len(state.unread) > MAX_LINE_BYTES:
            raise ProcessFailed(f"it sent a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            self._take(state, line)

    def _take(self, state: _Exchange, line: bytes) -> None:
        """Use a line of the process; raises `ProcessFailed` for one that is no answer."""
        try:
            said = json.loads(line)
            if not state.ready:
                if "error" in said:
                    raise ProcessFailed(f"it failed to load: {said['error']!s:.300}")
                state.ready = said["ready"] is True
                return
            number, tokens = int(said["id"]), _tokens(said["tokens"])
            key, _ = state.sent.pop(number)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ProcessFailed(f"it sent no answer but {line!r:.80} ({error!r:.80})") from error
        self.counts.answered += 1
        self._answers[key] = tokens
        if len(self._answers) > MAX_ANSWERS:
            with contextlib.suppress(KeyError):
                self._answers.popitem(last=False)


def command_of(folder: Path) -> list[str]:
    """Return the command that starts the process for a predictor's directory."""
    return [sys.executable, "-P", "-m", "caesura.scheduler.prompt_lengths.child", str(folder)]


def _tokens(values: Any) -> tuple[float, ...]:
    """Return ascending token counts; raises `ValueError` or `TypeError` for anything else."""
    tokens = tuple(sorted(float(value) for value in values))
    if not 1 <= len(tokens) <= MAX_VALUES or not 0 <= tokens[0] <= tokens[-1] < inf:
        raise ValueError(f"lengths must be 1 to {MAX_VALUES} finite numbers >= 0")
    return tokens
