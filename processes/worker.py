"""The parent's handle on a worker: a process that runs a module's functions, by JSON lines.

It inherits no keys, tokens or addresses from the environment.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, Self, cast

MAX_LINE_BYTES = 65 * 2**20
"""The longest answer, in bytes; the worker itself refuses slightly shorter results."""
LAST_WORDS_BYTES = 2000
KILL_SECONDS = 2.0
"""How long the process has to end the processes that it started, before it is killed."""
SAID = ("result", "error", "news")
"""What a line of the process holds, one of them."""
KEEPER = Path(__file__).with_name("keeper.py")


_NAMES = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"})
_PREFIXES = ("LC_", "PYTHON", "XDG_")


class WorkerFailed(RuntimeError):
    """The called function raised; the message is the exception's."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The name of the exception's class."""


class WorkerDied(RuntimeError):
    """The process ended during a call, sent an invalid answer, or did not start."""


class Worker:
    """A process that runs a module's functions, one call at a time.

    A call that is cancelled or times out kills the process and every process that it started,
    since its state is then unknown. The worker belongs to the event loop that started it, and
    ends with that loop under `asyncio.run`.
    """

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport, name: str) -> None:
        self._process = process
        self._transport = transport
        self._module = name
        self._busy = asyncio.Lock()
        self._last_line = asyncio.ensure_future(self._listen())
        self._ending: asyncio.Future[None] | None = None
        self.calls = 0
        """How many calls were sent to the process."""

    @classmethod
    async def spawn(
        cls,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
    ) -> Self:
        """Start a process for `module`, importable by its name.

        environment: variables besides those that all workers get. memory_bytes: limit of the
        address space (RLIMIT_AS), set before the module's import. Returns before the module is
        imported. Raises WorkerDied if no process can be started.
        """
        starting = asyncio.ensure_future(cls._start(module, environment, memory_bytes))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_kill_started(starting)))
            raise

    @classmethod
    async def _start(
        cls, module: str, environment: Mapping[str, str] | None, memory_bytes: int | None
    ) -> Self:
        loop = asyncio.get_running_loop()
        options = {"module": module, "parent": os.getpid(), "memory_bytes": memory_bytes}
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=MAX_LINE_BYTES, loop=loop),
                *(sys.executable, "-P", str(KEEPER), json.dumps(options)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=worker_environment(environment),
                start_new_session=True,  # a process group of its own, which is killed as one
            )
        except OSError as error:
            raise WorkerDied(f"the process for {module} cannot be started: {error}") from error
        return cls(Process(transport, protocol, loop), transport, module)

    @property
    def pid(self) -> int:
        """The id of the process and of its process group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process can take calls."""
        return self._process.returncode is None and self._ending is None

    async def call(self, function: str, /, **arguments: Any) -> Any:
        """Call a function of the module with JSON-able arguments; return its JSON-able result.

        Concurrent calls wait for one another. Raises WorkerFailed and WorkerDied, and TypeError or
        ValueError for arguments that JSON cannot represent.
        """
        return await self._call({"call": function, "arguments": arguments})

    async def follow(self, function: str, news: Callable[[Any], None], /, **arguments: Any) -> Any:
        """Call a function as `call` does, which tells how far it is.

        The function has one more argument, `tell`, a function of one JSON-able value; `news` is
        called with each value. What `news` raises kills the process.
        """
        return await self._call({"call": function, "arguments": arguments, "follow": True}, news)

    async def _call(
        self, asked: dict[str, Any], news: Callable[[Any], None] = lambda _: None
    ) -> Any:
        async with self._busy:
            line = json.dumps({"id": self.calls + 1, **asked}).encode() + b"\n"
            if not self.is_alive:
                raise WorkerDied(f"the process for {self._module} has ended")
            self.calls += 1
            try:
                answer = await self._exchange(line, news)
            except ConnectionError as error:
                await self.kill()
                raise WorkerDied(self._cause_of_death(str(error))) from error
            except BaseException:  # cancelled, most of all
                await self.kill()
                raise
        if "error" in answer:
            failed = WorkerFailed(answer["error"], answer.get("kind", ""))
            failed.add_note(f"In the worker process:\n{answer.get('trace', '')}")
            raise failed
        return answer["result"]

    async def kill(self) -> None:
        """Kill the process and every process that it started. May be called twice."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        # Shielded: a caller that is cancelled must not keep the process alive.
        await asyncio.shield(self._ending)

    async def _exchange(self, line: bytes, news: Callable[[Any], None]) -> dict[str, Any]:
        """Send a call and return its answer. Raises ConnectionError, and what `news` raises."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()
        while "news" in (said := await self._next_line()):
            news(said["news"])
        return said

    async def _next_line(self) -> dict[str, Any]:
        """Return what the process says next of the last call. Raises ConnectionError."""
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError as error:
            raise ConnectionError(str(error)) from error  # the line is too long
        if not line.endswith(b"\n"):
            await self._wait_for_exit()  # the exit status is known a moment later
            raise ConnectionError
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        is_answer = isinstance(said, dict) and not said.keys().isdisjoint(SAID)
        if not is_answer or said.get("id") != self.calls:
            raise ConnectionError(f"it wrote an invalid answer: {line[:80]!r}")
        return cast(dict[str, Any], said)

    async def _end(self) -> None:
        if (answers := self._transport.get_pipe_transport(1)) is not None:
            answers.close()  # no answer is read any more, and an open pipe would delay the end
        with suppress(ProcessLookupError):
            self._process.terminate()  # its keeper kills the descendants
        if await self._wait_for_exit():
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._wait_for_exit()
        self._transport.close()  # a process that escaped may still hold the pipes

    async def _wait_for_exit(self) -> bool:
        ended = asyncio.ensure_future(self._process.wait())
        try:
            _, left = await asyncio.wait([ended, self._last_line], timeout=KILL_SECONDS)
        finally:
            ended.cancel()
        return not left

    async def _listen(self) -> str:
        """Return the last line of stderr; it must be read, or the process would block."""
        assert self._process.stderr is not None
        kept = b""
        try:
            while piece := await self._process.stderr.read(65536):
                kept = (kept + piece)[-LAST_WORDS_BYTES:]
        except asyncio.CancelledError:  # `asyncio.run` cancels remaining tasks
            self._abandon()
            raise
        lines = kept.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _abandon(self) -> None:
        """Terminate the process without waiting for its end."""
        with suppress(ProcessLookupError):
            self._process.terminate()  # its keeper kills the descendants
        for number in range(3):
            if (pipe := self._transport.get_pipe_transport(number)) is not None:
                pipe.close()

    def _cause_of_death(self, reason: str) -> str:
        words = self._last_line.result() if self._last_line.done() else ""
        status = self._process.returncode
        return f"the process for {self._module} ended ({status}) {reason or words}".rstrip()


async def _kill_started(starting: Awaitable[Worker]) -> None:
    """Kill a worker whose starter was cancelled."""
    with suppress(WorkerDied):
        await (await starting).kill()


def worker_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for paths and language, one thread for OpenMP, and `added`."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    return {**passed, "OMP_NUM_THREADS": "1", **(added or {})}
