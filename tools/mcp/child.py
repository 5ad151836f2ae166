"""The process of a stdio server: started with little of our environment, ended with all it started.

The library's own one leaves its child behind when this process is killed.
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
"""What a server sees of our environment: no keys."""
GRACE_SECONDS = 1.0
"""How long a server has to end once its stdin is closed, and again after SIGTERM."""
SETTLE_SECONDS = 0.3
"""How long is waited, once a server's output ends, for what it said last and its exit status."""
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
        self.said = asyncio.ensure_future(_last_words(process))

    @classmethod
    async def start(cls, settings: ServerSettings) -> "Child":
        """Start it; raises SetupError if there is no such program or directory."""
        assert settings.command is not None
        environment = {key: os.environ[key] for key in INHERITED if key in os.environ}
        environment |= settings.env
        wanted = settings.command
        if os.sep in wanted and settings.cwd is not None:
            wanted = str(settings.cwd / wanted)
        command = shutil.which(wanted, path=environment.get("PATH"))
        if command is None:
            raise SetupError(f"there is no program {settings.command!r} to start")
        if settings.cwd is not None and not settings.cwd.is_dir():
            raise SetupError(f"there is no directory {settings.cwd}")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), command),
                *settings.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=settings.cwd,
                start_new_session=True,  # its own process group, killed as one
            )
        except (OSError, ValueError) as error:
            raise SetupError(f"it cannot be started: {error}") from None
        return cls(process)

    async def end(self) -> None:
        """Close its stdin, wait for it, then kill it and all that it has started.

        May be called twice. Once begun it is finished, although who waits for it is cancelled.
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
        # A grandchild in a group of its own may hold the pipes open for ever.
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()

    def end_now(self, reason: str) -> None:
        """Kill it; the reason is what `why` tells."""
        self._reason = reason
        self._signal(signal.SIGKILL)

    async def settle(self) -> None:
        """Wait a moment for what `why` tells: it comes behind the end of the output."""
        await asyncio.wait([self.said], timeout=SETTLE_SECONDS)
        await self._ended(SETTLE_SECONDS)

    def why(self) -> str:
        """Why it ended, as far as it is known: the exit status and the last line it wrote."""
        if self._reason:
            return self._reason
        status, said = self.process.returncode, ""
        if self.said.done() and not self.said.cancelled():
            said = f": {self.said.result()}" if self.said.result() else ""
        return f"exit status {status}{said}" if status is not None else "it closed its output"

    async def _ended(self, seconds: float = GRACE_SECONDS) -> bool:
        # Not process.wait(): that waits for the pipes too, which a grandchild may hold.
        deadline = asyncio.get_running_loop().time() + seconds
        while self.process.returncode is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """The last line of what the process writes to stderr, which has to be read lest it block."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(65536):
        kept = (kept + piece)[-LAST_WORDS_BYTES:]
    said = kept.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:300] if said else ""
