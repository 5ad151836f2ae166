"""A server with a small KV cache, its processes, and what it says of itself."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parents[3]
START_SECONDS = 600.0
REST_SECONDS = 120.0
STOP_SECONDS = 120.0
AT_REST = (
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)
"""What must be 0 once nobody asks for anything."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    process: psutil.Popen
    url: str
    log: Path

    def engines(self) -> list[psutil.Process]:
        """Return the engine's processes."""
        return [one for one in _descendants(self.process) if "EngineCore" in _name_of(one)]

    def usage(self) -> tuple[float, int, int]:
        """Return the resident MB of all processes, descriptors of the server, and processes."""
        alive = [self.process, *_descendants(self.process)]
        megabytes = sum(_resident(one) for one in alive) / 2**20
        return megabytes, self.process.num_fds(), len(alive)

    def busy(self) -> dict[str, float]:
        """Return what is not 0 of what must be at rest."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        found: dict[str, float] = {}
        for name in AT_REST:
            for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M):
                if float(value):
                    found[name] = float(value)
        return found


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start a server and yield it; end it afterwards, whatever has happened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [
        *(sys.executable, "-m", "caesura", "serve", "--no-calibrate", "--port", str(port)),
        *(
            "--",
            "--max-model-len",
            "1024",
            "--max-num-seqs",
            "4",
            "--num-gpu-blocks-override",
            "48",
        ),
    ]
    log = folder / "server.log"
    config = folder / "caesura.toml"
    config.write_text(f'[data]\ndirectory = "{folder}"\n')
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "CAESURA_CONFIG": str(config),
        "CAESURA_TRACE": str(folder / "traces.sqlite"),
        "XDG_STATE_HOME": str(folder),
    }
    with log.open("w") as output:
        process = psutil.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    known = [process]
    try:
        until(lambda: _ready(server), START_SECONDS, f"the server did not start, see {log}")
        yield server
    finally:
        _end(process, known)


def stopped(server: Server) -> list[str]:
    """End a server as its service manager does; return the processes that are left."""
    family = [server.process, *_descendants(server.process)]
    server.process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, STOP_SECONDS)
    return [f"{one.pid} {_name_of(one)}" for one in left]


def until(there: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Wait for a condition; raise `TimeoutError` after so many seconds."""
    ends = time.monotonic() + seconds
    while not there():
        if time.monotonic() > ends:
            raise TimeoutError(otherwise)
        time.sleep(0.2)


def _ready(server: Server) -> bool:
    if server.process.poll() is not None:
        raise RuntimeError(f"the server ended:\n{server.log.read_text()[-3000:]}")
    try:
        return httpx.get(f"{server.url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _end(process: psutil.Popen, known: list[psutil.Process]) -> None:
    for one in [*known, *_descendants(process)]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(known, 30)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _name_of(process: psutil.Process) -> str:
    try:
        return " ".join([process.name(), *process.cmdline()])
    except psutil.Error:
        return ""


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
