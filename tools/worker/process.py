"""One worker process, as its parent sees it."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, Self, cast

from caesura.tools.worker.environment import worker_environment

MAX_LINE_BYTES = 65 * 2**20
"""The longest answer, in bytes; the worker itself refuses results that come near."""
LAST_WORDS_BYTES = 2000
KILL_SECONDS = 2.0
"""How long the process has to end what it has started, before it is killed itself."""
CHILD = Path(__file__).with_name("child.py")


class WorkerFailed(RuntimeError):
    """The function that was called raised; the message is the exception's."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The exception's class, by name."""


class WorkerDied(RuntimeError):
    """The process ended in the middle of a call, made no sense, or did not start."""


class Worker:
    """A process that runs a module's functions, one call at a time.

    A call that is cancelled, as by a time-out, kills the process and all that it has started:
    nobody knows what state it is in. Belongs to the event loop that it was started in, and ends
    with it when `asyncio.run` does.
    """

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport, name: str) -> None:
        self._process = process
        self._transport = transport
        self._module = name
        self._busy = asyncio.Lock()
        self._said = asyncio.ensure_future(self._listen())
        self._ending: asyncio.Future[None] | None = None
        self.calls = 0
        """How many calls it has been sent."""

    @classmethod
    async def spawn(
        cls,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
    ) -> Self:
        """Start a process for `module`, importable by its name.

        environment: variables besides the few that workers get; memory_bytes: of address space
        (RLIMIT_AS), from before the import on. Returns before the module is imported. Raises
        WorkerDied if no process can be started.
        """
        starting = asyncio.ensure_future(cls._start(module, environment, memory_bytes))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_undo(starting)))
            raise

    @classmethod
    async def _start(
        cls, module: str, environment: Mapping[str, str] | None, memory_bytes: int | None
    ) -> Self:
        loop = asyncio.get_running_loop()
        options = {"parent": os.getpid(), "memory_bytes": memory_bytes}
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=MAX_LINE_BYTES, loop=loop),
                *(sys.executable, "-P", str(CHILD), module, json.dumps(options)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=worker_environment(environment),
                start_new_session=True,  # its own process group, killed as one
            )
        except OSError as error:
            raise WorkerDied(f"no process for {module} can be started: {error}") from error
        return cls(Process(transport, protocol, loop), transport, module)

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take calls."""
        return self._process.returncode is None and self._ending is None

    async def call(self, function: str, /, **arguments: Any) -> Any:
        """Call a function of the module with JSON-able arguments; return its JSON-able result.

        Calls at the same time wait for one another. Raises WorkerFailed and WorkerDied, and
        TypeError or ValueError for arguments that are no JSON.
        """
        async with self._busy:
            asked = {"id": self.calls + 1, "call": function, "arguments": arguments}
            line = json.dumps(asked).encode() + b"\n"
            if not self.is_alive:
                raise WorkerDied(f"the process for {self._module} has ended")
            self.calls += 1
            try:
                answer = await self._exchange(line)
            except asyncio.CancelledError:
                await self.kill()
                raise
            except (ConnectionError, ValueError) as error:  # ValueError: no end of line in sight
                await self.kill()
                raise WorkerDied(self._obituary(str(error))) from error
        if "error" in answer:
            raise WorkerFailed(answer["error"], answer.get("kind", ""))
        return answer["result"]

    async def kill(self) -> None:
        """End the process and everything that it has started. May be called twice."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        # Shielded: whoever loses patience does not keep the process alive.
        await asyncio.shield(self._ending)

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        """Send a call and read the answer to it; raises ConnectionError or ValueError."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(line)
        await stdin.drain()
        told = await stdout.readline()
        if not told.endswith(b"\n"):
            await self._is_gone()  # how it ended is known a moment later
            raise ConnectionError
        try:
            answer = json.loads(told)
        except ValueError:
            answer = None
        is_answer = isinstance(answer, dict) and ("result" in answer or "error" in answer)
        if not is_answer or answer.get("id") != self.calls:
            raise ValueError(f"it wrote what is no answer: {told[:80]!r}")
        return cast(dict[str, Any], answer)

    async def _end(self) -> None:
        if (answers := self._transport.get_pipe_transport(1)) is not None:
            answers.close()  # nobody reads on, and its end would be waited for
        with suppress(ProcessLookupError):
            self._process.terminate()  # its keeper kills the rest
        if await self._is_gone():
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._is_gone()
        self._transport.close()  # pipes that somebody out of reach still holds

    async def _is_gone(self) -> bool:
        ended = asyncio.ensure_future(self._process.wait())
        try:
            _, left = await asyncio.wait([ended, self._said], timeout=KILL_SECONDS)
        finally:
            ended.cancel()
        return not left

    async def _listen(self) -> str:
        """The last line of what it writes to stderr, which has to be read lest it block."""
        assert self._process.stderr is not None
        kept = b""
        try:
            while piece := await self._process.stderr.read(65536):
                kept = (kept + piece)[-LAST_WORDS_BYTES:]
        except asyncio.CancelledError:  # as `asyncio.run` does with all that is left
            self._abandon()
            raise
        lines = kept.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _abandon(self) -> None:
        """Have it ended, without waiting."""
        with suppress(ProcessLookupError):
            self._process.terminate()  # its keeper kills the rest
        for number in range(3):
            if (pipe := self._transport.get_pipe_transport(number)) is not None:
                pipe.close()

    def _obituary(self, reason: str) -> str:
        words = self._said.result() if self._said.done() else ""
        status = self._process.returncode
        return f"the process for {self._module} ended ({status}) {reason or words}".rstrip()


async def _undo(starting: Awaitable[Worker]) -> None:
    """End a worker that nobody waits for any more."""
    with suppress(WorkerDied):
        await (await starting).kill()
