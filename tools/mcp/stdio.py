"""The stdio transport: a server's process, and one JSON message a line.

The library's own transport reads lines of any length, and fails at a byte that is not UTF-8. It
also leaves its child running when this process is killed. Here messages are bounded in length and
rate. The server inherits few variables, and its descendants end with it.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from caesura.processes.worker import KEEPER
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.services import SetupError

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LOGNAME", "SHELL", "TERM", "TMPDIR", "USER")
"""The environment variables that a server inherits: no keys."""
GRACE_SECONDS = 1.0
"""How long a server may take to end after its stdin closed, and again after SIGTERM."""
SETTLE_SECONDS = 0.3
"""After a server's output ends, the wait for its last stderr line and its exit status."""
LAST_WORDS_BYTES = 2000


class Child:
    """The process of a stdio server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._reason = ""
        self._ending: asyncio.Future[None] | None = None
        self.said = asyncio.ensure_future(_last_line(process))

    @classmethod
    async def start(cls, settings: ServerSettings) -> "Child":
        """Start the process; raises SetupError if the program or directory does not exist."""
        assert settings.command is not None
        environment = {key: os.environ[key] for key in INHERITED if key in os.environ}
        environment |= settings.env
        wanted = settings.command
        if os.sep in wanted and settings.cwd is not None:
            wanted = str(settings.cwd / wanted)
        command = shutil.which(wanted, path=environment.get("PATH"))
        if command is None:
            raise SetupError(f"the program {settings.command!r} does not exist or is not in PATH")
        if settings.cwd is not None and not settings.cwd.is_dir():
            raise SetupError(f"the directory {settings.cwd} does not exist")
        options = {"execute": [command, *settings.args], "parent": os.getpid()}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(KEEPER), json.dumps(options)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=settings.cwd,
                start_new_session=True,  # a process group of its own, which is killed as one
            )
        except (OSError, ValueError) as error:
            raise SetupError(
                f"the program {settings.command!r} cannot be started: {error}"
            ) from None
        return cls(process)

    async def end(self) -> None:
        """Close stdin, wait for the process, then kill it and every process that it started.

        May be called twice. The clean-up is completed even if its caller is cancelled.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        if not await self._ended():
            self._signal(signal.SIGTERM)
            await self._ended()
        self._signal(signal.SIGKILL)
        await self._ended()
        self.said.cancel()
        await asyncio.wait([self.said])
        # A grandchild in a process group of its own may hold the pipes open for ever.
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()

    def end_now(self, reason: str) -> None:
        """Kill the process; `why` then returns this reason."""
        self._reason = reason
        self._signal(signal.SIGKILL)

    async def settle(self) -> None:
        """Wait a moment for the information behind `why`, which follows the end of the output."""
        await asyncio.wait([self.said], timeout=SETTLE_SECONDS)
        await self._ended(SETTLE_SECONDS)

    def why(self) -> str:
        """Return why the process ended: its exit status and last line, as far as known."""
        if self._reason:
            return self._reason
        status, said = self.process.returncode, ""
        if self.said.done() and not self.said.cancelled():
            said = f": {self.said.result()}" if self.said.result() else ""
        return f"exit status {status}{said}" if status is not None else "it closed its output"

    async def _ended(self, seconds: float = GRACE_SECONDS) -> bool:
        # process.wait() would also wait for the pipes, which a grandchild may hold.
        deadline = asyncio.get_running_loop().time() + seconds
        while self.process.returncode is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


async def _last_line(process: asyncio.subprocess.Process) -> str:
    """Return the last line of stderr; it must be read, or the process would block."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(65536):
        kept = (kept + piece)[-LAST_WORDS_BYTES:]
    said = kept.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:300] if said else ""


LOG = logging.getLogger(__name__)

MESSAGES_PER_SECOND = 2000
ENDLESS = 8
"""A line longer than this many times the limit is taken for an endless one."""
_READ_BYTES = 65536
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")')


class Endless(Exception):
    """The server writes a message that does not end."""


class Pace:
    """Limits reading to MESSAGES_PER_SECOND; a faster server blocks on its full pipe."""

    def __init__(self) -> None:
        self._since = 0.0
        self._messages = 0

    async def keep(self) -> None:
        """Wait before another message where the rate limit requires it."""
        loop = asyncio.get_running_loop()
        self._messages += 1
        if self._messages <= MESSAGES_PER_SECOND:
            return
        await asyncio.sleep(max(0.0, self._since + 1.0 - loop.time()))
        self._since, self._messages = loop.time(), 1


async def lines(stream: asyncio.StreamReader, max_bytes: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is longer than `max_bytes` and so only begins here.

    Raises Endless at a line of ENDLESS times that length.
    """
    line, size = bytearray(), 0
    while piece := await stream.read(_READ_BYTES):
        *whole, rest = piece.split(b"\n")
        for part in whole:
            line += part[: max_bytes - len(line)]
            yield bytes(line), size + len(part) > max_bytes
            line, size = bytearray(), 0
        line += rest[: max_bytes - len(line)]
        size += len(rest)
        if size > ENDLESS * max_bytes:
            raise Endless
    if line:
        yield bytes(line), size > max_bytes


def read_message(line: bytes, cut: bool, max_bytes: int) -> SessionMessage | None:
    """Return a line as a message; an unreadable one becomes an error for the request it names."""
    reason = f"a message of more than {max_bytes} bytes"
    if not cut:
        try:
            text = line.decode("utf-8", "replace")
            return SessionMessage(
                mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False)
            )
        except ValueError:
            reason = "a message that is not JSON-RPC"
    LOG.debug("%s: %r", reason, line[:200])
    found = _ID.search(line[:4096])
    if found is None or b'"method"' in line[:4096]:
        return None
    number = found[1].decode("utf-8", "replace")
    error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=f"the server sent {reason}")
    answered = int(number) if number.isdecimal() else number[1:-1]
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=answered, error=error))


@asynccontextmanager
async def transport(
    child: Child, max_bytes: int, ended: asyncio.Event
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of messages over a child's pipes; `ended` is set when they close.

    Leaving the context ends the child. max_bytes: limit for one message; a request with a longer
    answer gets an error.
    """
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.ensure_future(_reading(child, incoming, max_bytes, ended)),
        asyncio.ensure_future(_writing(child, outgoing, incoming, ended)),
    ]
    try:
        yield read, write
    finally:
        write.close()
        await child.end()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (incoming, read, outgoing):
            stream.close()


async def _reading(
    child: Child,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    max_bytes: int,
    ended: asyncio.Event,
) -> None:
    assert child.process.stdout is not None
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            pace = Pace()
            async for line, cut in lines(child.process.stdout, max_bytes):
                await pace.keep()
                if (message := read_message(line, cut, max_bytes)) is not None:
                    await incoming.send(message)
        except Endless:
            child.end_now("it sent a message without end")
        finally:
            await child.settle()
            ended.set()


async def _writing(
    child: Child,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ended: asyncio.Event,
) -> None:
    assert child.process.stdin is not None
    try:
        async with outgoing:
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                child.process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await child.process.stdin.drain()
    except (ConnectionError, RuntimeError):
        incoming.close()  # no request can be sent any more; the waiting ones fail
        ended.set()
