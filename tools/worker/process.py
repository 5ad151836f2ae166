"""One worker process, as its parent sees it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

MAX_LINE_BYTES = 64 * 2**20
LAST_WORDS_BYTES = 2000


class WorkerFailed(RuntimeError):
    """The function that was called raised; the message is the exception's."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The exception's class, by name."""


class WorkerDied(RuntimeError):
    """The process ended in the middle of a call, or did not start."""


class Worker:
    """A process that runs a module's functions, one call at a time.

    A call that is cancelled, as by a time-out, kills the process and all that it has started:
    nobody knows what state it is in.
    """

    def __init__(self, process: asyncio.subprocess.Process, module: str) -> None:
        self._process = process
        self._module = module
        self._busy = asyncio.Lock()
        self._said = asyncio.ensure_future(_last_words(process))

    @classmethod
    async def spawn(cls, module: str, *, environment: Mapping[str, str] | None = None) -> Self:
        """Start a process for `module`, importable by its name, `environment` added to ours.

        Returns before the module is imported. Raises WorkerDied if no process can be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "caesura.tools.worker.child",
                module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                start_new_session=True,  # its own process group, killed as one
            )
        except OSError as error:
            raise WorkerDied(f"no process for {module} can be started: {error}") from error
        return cls(process, module)

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take calls."""
        return self._process.returncode is None

    async def call(self, function: str, /, **arguments: Any) -> Any:
        """Call a function of the module with JSON-able arguments; return its JSON-able result.

        Calls at the same time wait for one another. Raises WorkerFailed and WorkerDied.
        """
        async with self._busy:
            try:
                return await self._exchange(function, arguments)
            except asyncio.CancelledError:
                await asyncio.shield(self.kill())
                raise

    async def kill(self) -> None:
        """End the process and everything that it has started. May be called twice."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await asyncio.wait([self._said])

    async def _exchange(self, function: str, arguments: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        line = b""
        try:
            stdin.write(json.dumps({"call": function, "arguments": arguments}).encode() + b"\n")
            await stdin.drain()
            line = await stdout.readline()
        except (ConnectionError, ValueError) as error:  # ValueError: a line over the limit
            reason = str(error)
        else:
            reason = ""
        if not line.endswith(b"\n"):
            await self.kill()
            words = self._said.result() if not self._said.cancelled() else ""
            raise WorkerDied(
                f"the process for {self._module} ended ({self._process.returncode}) "
                f"{reason or words}".rstrip()
            )
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"], answer.get("kind", ""))
        return answer["result"]


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """The last line of what the process writes to stderr, which has to be read lest it block."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(65536):
        kept = (kept + piece)[-LAST_WORDS_BYTES:]
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
