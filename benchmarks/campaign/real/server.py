"""A server with a small KV cache that can be killed and started again over the same files."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil

from . import odd_tools

START_SECONDS = 600.0
STOP_SECONDS = 120.0
HOST_GIB = 0.05
PRIMITIVES = 64
"""How many compiled matrix products oneDNN keeps in vLLM's CPU engine; its default is 1024.

There is one for each number of tokens in a step and each shape of a layer. Until the cache is full,
which takes an engine more than half an hour, it looks like a leak.
"""
ENGINE_TIMEOUT_SECONDS = 30
AT_REST = (
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "caesura_requests_in_flight",
    "caesura_kv_blocks",
)
"""What must be 0 once nobody asks for anything."""
CONFIGURATION = """
[data]
directory = "data"

[tools.environment]
backend = "gymnasium"
id = "FrozenLake-v1"
kwargs = {{ is_slippery = false }}

[mcpServers.notes]
command = {python}
args = [{program}, {notes}]
allow = ["write_note"]
timeout_seconds = 10
restarts = 100000

[mcpServers.odd]
command = {python}
args = [{program}, {odd}]
deny = ["write_note"]
timeout_seconds = 2
restarts = 100000
"""


class Server:
    """A server, its processes and files, and what it says of itself."""

    def __init__(self, folder: Path) -> None:
        """Create it in an empty folder; `start` starts it."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.folder, self.log = folder, folder / "server.log"
        self.notes, self.odd = folder / "notes", folder / "odd"
        self.journal = folder / "journal.sqlite"
        self.life = 0
        """How many times it was killed."""
        self.down = False
        """Whether it was killed and does not take work again yet."""
        self.disk_full_until = -1.0
        """When its disk was full for the last time, by the monotonic clock; `inf` during that."""
        self.met: set[psutil.Process] = set()
        """Processes of earlier lives, none of which may be left."""
        self._configuration = folder / "caesura.toml"
        self._configuration.write_text(
            CONFIGURATION.format(
                python=json.dumps(sys.executable),
                program=json.dumps(odd_tools.__file__),
                notes=json.dumps(str(self.notes)),
                odd=json.dumps(str(self.odd)),
            )
        )

    async def start(self) -> None:
        """Start its process and wait until it takes work."""
        options = ("--no-calibrate", "--retention", "5", "--port", str(self._port))
        files = (
            *("--config", str(self._configuration), "--journal", str(self.journal)),
            *("--responses", str(self.folder / "responses.sqlite")),
            *("--trace", str(self.folder / "traces.sqlite")),
            *("--engine-timeout", str(ENGINE_TIMEOUT_SECONDS)),
        )
        small = ("--max-model-len", "1024", "--max-num-seqs", "4")
        # The buffer's pages count when they are first written: in a small one that is soon over.
        host = ("--host-gib", str(HOST_GIB))
        with self.log.open("a") as output:
            self.process = psutil.Popen(
                [
                    *(sys.executable, "-m", "caesura", "serve", *options, *host, *files),
                    *("--", *small, "--num-gpu-blocks-override", "48"),
                ],
                cwd=self.folder,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(PRIMITIVES),
                    "XDG_STATE_HOME": str(self.folder),
                    "XDG_DATA_HOME": str(self.folder),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        await self.ready()

    async def kill(self) -> None:
        """Kill it by SIGKILL, and start the next one over the same files."""
        self.met.update(self.family()[1:])
        self.life, self.down = self.life + 1, True
        self.process.kill()
        self.process.wait()
        await self.start()
        self.down = False

    async def ready(self) -> None:
        """Wait until `/ready` says 200. Raises `TimeoutError`, and `RuntimeError` if it ended."""
        async with httpx.AsyncClient(timeout=10) as http, asyncio.timeout(START_SECONDS):
            while True:
                if self.process.poll() is not None and not self.down:
                    raise RuntimeError(f"the server ended by itself:\n{self.end_of_log()}")
                with suppress(httpx.TransportError):
                    if (await http.get(f"{self.url}/ready")).status_code == 200:
                        return
                await asyncio.sleep(0.2)

    def end_of_log(self) -> str:
        """Return the last lines of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]

    def family(self) -> list[psutil.Process]:
        """Return its process and all that it started."""
        return [self.process, *_descendants(self.process)]

    def engines(self) -> list[psutil.Process]:
        """Return the engine's processes."""
        return [one for one in self.family()[1:] if "EngineCore" in name_of(one)]

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes of tools."""
        return [one for one in self.family()[1:] if "processes/keeper.py" in name_of(one)]

    def tool_servers(self) -> list[psutil.Process]:
        """Return the processes of MCP servers."""
        return [one for one in self.family()[1:] if odd_tools.__file__ in name_of(one)]

    def usage(self) -> dict[str, tuple[float, int]]:
        """Return the resident MB and the descriptors of the server and of its engine, by name."""
        found = {}
        for role, processes in (("server", [self.process]), ("engine", self.engines())):
            for one in processes:
                with suppress(psutil.Error):
                    used = one.memory_info().rss / 2**20, one.num_fds()
                    found[f"{role}, process {one.pid}"] = used
        return found

    def holds(self) -> tuple[int, int]:
        """Return the descriptors of the server, and how many processes it has."""
        return self.process.num_fds(), len(self.family())

    async def busy(self, http: httpx.AsyncClient) -> dict[str, float]:
        """Return what is not 0 of what must be at rest."""
        text = (await http.get(f"{self.url}/metrics")).text
        found: dict[str, float] = {}
        for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.M):
            if name.startswith(AT_REST) and 'owner="free"' not in name and float(value):
                found[name] = float(value)
        pending = (await http.get(f"{self.url}/v1/pending")).json()["data"]
        return found | ({"questions to people": len(pending)} if pending else {})

    def stop(self) -> list[str]:
        """End it as its service manager does; return the processes that are left of all lives."""
        family = self.family()
        self.process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs([*family, *self.met], STOP_SECONDS)
        return [f"{one.pid} {name_of(one)}" for one in left]

    def end(self) -> None:
        """Kill what is left, whatever has happened."""
        left = [one for one in (*self.family(), *self.met) if one.is_running()]
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(left, 30)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    """Start a server and yield it; end it afterwards, whatever has happened."""
    server = Server(folder)
    try:
        await server.start()
        yield server
    finally:
        server.end()


async def until(there: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition for so many seconds at most; return whether it holds."""
    ends = time.monotonic() + seconds
    while not there():
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(0.2)
    return True


def name_of(process: psutil.Process) -> str:
    """Return its name and command line; an empty text if it is gone."""
    try:
        return " ".join([process.name(), *process.cmdline()])
    except psutil.Error:
        return ""


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []
