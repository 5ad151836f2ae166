"""A sandbox of one session, as this process sees it: a child process that is asked by lines."""

import asyncio
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from caesura.tools.errors import ToolError, Unavailable

START_SECONDS = 120.0
"""How long the start may take, with the copy of a folder."""
REPLY_SECONDS = 30.0
"""How long a reply may take after the time of its call is over."""
OUTPUT_BYTES = 24_000
MAX_REPLY_BYTES = 256 * 2**20
_BOX_UID = 0x7000_0000
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MAX_THREADS = 4
_HERE = Path(__file__).parent
_PROGRAMS = ("interpreter.py", "editing.py")
_BOOT = """
import sys, types
for name, path in {places!r}:
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from caesura.tools.code.inside import main
main()
"""
"""Imports the first process without what the packages above it import."""


class BoxFailed(RuntimeError):
    """A sandbox cannot be made on this machine, or not as configured. The message says why."""


class BoxLost(ToolError):
    """The sandbox ended during a call; all that it held is gone."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a sandbox holds, and what it may use."""

    python: str
    """The interpreter of the session's Python."""
    readable: tuple[str, ...]
    """What of the host's files can be read in the sandbox, beside those of the system."""
    folder: str = ""
    """The folder that is copied into the sandbox; empty: none."""
    skip: tuple[str, ...] = ()
    """Patterns of names that are not copied."""
    memory_bytes: int = 2**30
    disk_bytes: int = 2**29
    processes: int = 64

    def config(self) -> dict[str, Any]:
        """Return what the first process is told."""
        threads = str(min(_MAX_THREADS, os.cpu_count() or 1))
        return {
            "python": self.python,
            "readable": [*_SYSTEM, *_SETTINGS, *self.readable],
            "folder": self.folder,
            "skip": self.skip,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "inodes": 200_000,
            "processes": self.processes,
            "uid": _uid(),
            "programs": {name: (_HERE / name).read_text() for name in _PROGRAMS},
            "environment": {
                "PATH": f"{Path(self.python).parent}:/usr/local/bin:/usr/bin:/bin",
                "HOME": "/tmp",
                "TMPDIR": "/tmp",
                "LANG": "C.UTF-8",
                "MPLBACKEND": "Agg",
                "PYTHONDONTWRITEBYTECODE": "1",
                **dict.fromkeys(_THREADS, threads),
            },
        }


def _uid() -> int:
    """Return the user id of a sandbox: one that nobody else has where this process may choose."""
    if os.geteuid():
        return os.geteuid()
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        ranges = []
    most = max((int(first) + int(count) for first, _, count in ranges), default=0)
    if most > 2 * _BOX_UID:
        return _BOX_UID + secrets.randbelow(2**24)
    return 60_000 + secrets.randbelow(5_000) if most >= 65_535 else 65_534


@cache
def interpreter(python: str) -> tuple[str, tuple[str, ...]]:
    """Return an interpreter's path without links, and the folders that it needs.

    Blocking. Raises BoxFailed where it does not start, or needs a folder that holds other things.
    """
    code = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"
    try:
        ran = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        executable, *prefixes = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BoxFailed(f"the interpreter {python!r} does not start: {error}") from None
    found = dict.fromkeys([*prefixes, *map(os.path.realpath, prefixes)])
    first = path = _without_links(executable)
    while path not in found:  # each link on the way to the program
        found |= {path: None, os.path.dirname(path): None}
        if os.path.islink(path):
            path = _without_links(os.path.join(os.path.dirname(path), os.readlink(path)))
    folders = [each for each in found if os.path.isdir(each) and not f"{each}/".startswith("/usr/")]
    for folder in folders:
        if folder in ("/", "/home", "/root", os.path.expanduser("~")):
            raise BoxFailed(f"the interpreter {python!r} would show all of {folder}: name another")
    shown = (each for each in folders if not any(_is_in(each, other) for other in folders))
    return first, tuple(shown)


def _without_links(path: str) -> str:
    """Return a file's path, whose folders are no links."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _is_in(path: str, other: str) -> bool:
    return path != other and path.startswith(f"{other}/")


def default_python() -> str:
    """Return the interpreter that runs this process."""
    return sys.executable or shutil.which("python3") or "/usr/bin/python3"


def command(launcher: str = sys.executable, source: Path = _HERE) -> list[str]:
    """Return the command of a sandbox's first process.

    launcher: the Python that runs it. source: the folder of this package.
    """
    names = ("caesura", "caesura.tools", "caesura.tools.code")
    places = [(name, str(source)) for name in names]
    return [launcher, "-I", "-S", "-c", _BOOT.format(places=places)]


def environment() -> dict[str, str]:
    """Return the variables of a sandbox's first process, which are not those of its programs."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def opening(bounds: Bounds) -> bytes:
    """Return what the first process reads first."""
    told = json.dumps(bounds.config()).encode()
    return f"{len(told):08x}".encode() + told


@dataclass(slots=True, eq=False)
class Box:
    """A running sandbox. Its calls run one after the other."""

    process: asyncio.subprocess.Process
    bounds: Bounds
    missed: int = 0
    """How many files of the folder could not be copied."""
    changed: dict[str, int] = field(default_factory=dict)
    """The sizes of files that calls have written, also those whose caller has left."""
    gone: set[str] = field(default_factory=set)
    """The files that calls have removed."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closed: bool = False

    @classmethod
    async def start(cls, bounds: Bounds, first: Sequence[str] = ()) -> Self:
        """Start a sandbox; raise BoxFailed where that is not possible.

        first: the command of its first process; by default this Python runs it.
        """
        if platform.system() != "Linux":
            raise BoxFailed("sandboxes need Linux")
        process = await asyncio.create_subprocess_exec(
            *(first or command()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env=environment(),
            start_new_session=True,
            limit=MAX_REPLY_BYTES,
        )
        box = cls(process, bounds)
        try:
            assert process.stdin is not None
            process.stdin.write(opening(bounds))
            told = await asyncio.wait_for(box._reply(), START_SECONDS)
            if "failed" in told:
                raise BoxFailed(told["failed"])
        except BaseException as error:
            await box.aclose()
            if isinstance(error, TimeoutError):
                raise BoxFailed(f"it does not start within {START_SECONDS:g} s") from None
            if isinstance(error, BoxLost | OSError):
                raise BoxFailed("its first process ended at the start") from None
            raise
        box.missed = int(told["missed"])
        return box

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._is_closed

    async def run(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        given: str | None = None,
        output: int = OUTPUT_BYTES,
    ) -> dict[str, Any]:
        """Run a program to its end, with a text as its input; return what became of it.

        Raises BoxLost. A cancellation ends the program.
        """
        request = {"op": "run", "argv": list(argv), "input": given}
        return await self._ask({**request, "seconds": seconds, "output": output})

    async def python(
        self, code: str, seconds: float, *, output: int = OUTPUT_BYTES
    ) -> dict[str, Any]:
        """Run code in the session's interpreter; as `run`."""
        return await self._ask({"op": "python", "code": code, "seconds": seconds, "output": output})

    async def aclose(self) -> None:
        """End the sandbox, with all that runs in it."""
        self._is_closed = True
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        # The first process holds the other end, and all processes end with it.
        assert self.process.stdout is not None
        while await self.process.stdout.read(65_536):
            pass

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        asking = asyncio.ensure_future(self._asked(request))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if not asking.done():
                await self._stop(asking)
            raise

    async def _stop(self, asking: "asyncio.Future[dict[str, Any]]") -> None:
        """End a call that nobody waits for any more."""
        if not asking.done() and not self._turn.locked():
            asking.cancel()
            return
        with suppress(OSError, BoxLost):
            self._write({"op": "stop"})

    async def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            if self._is_closed:
                raise BoxLost("the sandbox has ended, and what it held is lost; call again")
            try:
                self._write(request)
                patience = float(request["seconds"]) + REPLY_SECONDS
                told = await asyncio.wait_for(self._reply(), patience)
            except BaseException as error:
                await self.aclose()
                if isinstance(error, TimeoutError | OSError):
                    why = "the sandbox did not answer, and what it held is lost; call again"
                    raise BoxLost(why) from None
                raise
        if "failed" in told:
            raise Unavailable(str(told["failed"]))
        for path, size in told["changed"]:
            self.changed[path] = size
            self.gone.discard(path)
        for path in told["gone"]:
            self.changed.pop(path, None)
            self.gone.add(path)
        return told

    def _write(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")

    async def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise BoxLost("the sandbox has ended, and what it held is lost; call again")
        told: dict[str, Any] = json.loads(line)
        return told
