"""Runs one client on one server: a clean home, nothing but the loopback, and a time limit."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.agents.clients import Client
from tests.agents.install import FOLDER
from tests.agents.recorder import Recorder
from tests.agents.task import lay, prompt
from tests.clients.libraries import environment

PORT = 8000
"""The server's port as a client inside of a network namespace sees it."""
SECONDS = 900
"""The longest that a client may take for one prompt; a loaded machine is slow."""
NAMESPACE = ("unshare", "-rnpm", "--fork", "--kill-child", "--mount-proc")
_INSIDE = Path(__file__).parent / "inside.py"


@cache
def has_namespaces() -> bool:
    """Whether this machine lets us run a program where there is only a loopback."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Place:
    """Where a client runs: its home, and the server's address as it sees it."""

    home: Path
    url: str
    model: str

    @property
    def repository(self) -> Path:
        return self.home / "repo"

    def filled(self, text: str, asked: str = "") -> str:
        """Return a text of the table of clients with what stands for its names."""
        values = {
            "@URL@": self.url,
            "@MODEL@": self.model,
            "@REPO@": str(self.repository),
            "@HOME@": str(self.home),
            "@PROMPT@": asked,
        }
        for name, value in values.items():
            text = text.replace(name, value)
        return text


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new folder with a short name, which goes with all that it holds."""
    folder = Path(tempfile.mkdtemp(prefix="agents-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lay_home(client: Client, place: Place) -> None:
    """Make the home of a client, with its files and the scratch repository."""
    programs = place.home / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(sys.executable)
    for path, text in client.files.items():
        file = place.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(place.filled(text))
    lay(place.repository)


def variables(client: Client, place: Place) -> dict[str, str]:
    """Return the environment of a client: its own, and nothing of ours but the path of Node."""
    told = {**client.environment, **client.quiet}
    node = environment()["PATH"].split(os.pathsep)
    usual = ("/usr/local/bin", "/usr/bin", "/bin")
    found = [each for each in node if (Path(each) / "node").exists()][:1]
    path = os.pathsep.join([str(place.home / "bin"), *found, *usual])
    own = {"PATH": path, "HOME": str(place.home), "LANG": "C.UTF-8", "TERM": "dumb"}
    if not has_namespaces():
        nowhere = "http://127.0.0.1:9"
        own |= {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}
        own |= {name.lower(): own[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")}
    return own | {"NO_COLOR": "1"} | {key: place.filled(value) for key, value in told.items()}


async def ask(
    client: Client, place: Place, socket: Path, log: Path, number: int
) -> tuple[int | None, str]:
    """Ask a client its first or second prompt, or set it up (0); return its exit code and words.

    The code is None where it took too long.
    """
    arguments = (client.setup, client.first, client.second)[number]
    asked = prompt(client.folder, number) if number else ""
    program = FOLDER / client.folder / client.program
    command = [str(program), *(place.filled(each, asked) for each in arguments)]
    if has_namespaces():
        inside = [sys.executable, "-I", str(_INSIDE), str(socket), str(PORT)]
        command = [*NAMESPACE, *inside, *command]
    return await _run(command, variables(client, place), place.repository, log)


async def _run(
    command: list[str], env: Mapping[str, str], folder: Path, log: Path
) -> tuple[int | None, str]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    code = None
    try:
        async with asyncio.timeout(SECONDS):
            code = await process.wait()
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return code, await asyncio.to_thread(_end_of, log)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def run_client(
    client: Client, recorder: Recorder, place: Place, socket: Path
) -> list[tuple[int | None, str]]:
    """Ask a client its prompts, one after the other; return how each ended."""
    lay_home(client, place)
    ends = []
    for number, arguments in enumerate((client.setup, client.first, client.second)):
        if not arguments:
            continue
        log = recorder.folder / f"said-{number}.log"
        ends.append(await ask(client, place, socket, log, number))
    return ends
