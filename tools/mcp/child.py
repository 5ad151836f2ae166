"""The process of a stdio server: it inherits few variables, and its descendants end with it.

The library's own transport leaves its child running when this process is killed.
"""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress

from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.services import SetupError

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LOGNAME", "SHELL", "TERM", "TMPDIR", "USER")
"""The environment variables that a server inherits: no keys."""
GRACE_SECONDS = 1.0
"""How long a server may take to end after its stdin closed, and again after SIGTERM."""
SETTLE_SECONDS = 0.3
"""After a server's output ends, the wait for its last stderr line and its exit status."""
LAST_WORDS_BYTES = 2000
_LAUNCH = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it survives the exec
except (OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


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
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), command),
                *settings.args,
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
