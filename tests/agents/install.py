"""Installs the newest release of each client, in a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.agents.clients import Client
from tests.clients.libraries import environment
from tests.clients.servers import ROOT

FOLDER = ROOT / ".cache" / "agents"
SECONDS = 1200
"""How long one installation may take."""


class Missing(Exception):
    """A client cannot be installed here; the message says why."""


def install(client: Client, *, newest: bool) -> str:
    """Install a client unless it is there, or its newest release; return its version.

    Raises `Missing`.
    """
    folder = FOLDER / client.folder
    if newest or not (folder / client.program).exists():
        shutil.rmtree(folder, ignore_errors=True)
        why = "it has no package"
        for packages in client.packages:
            try:
                (_with_npm if client.node else _with_pip)(client, folder, packages)
                break
            except Missing as missing:
                why = str(missing)
                shutil.rmtree(folder, ignore_errors=True)
        else:
            raise Missing(why)
    return _version(client, folder)


def _with_npm(client: Client, folder: Path, packages: tuple[str, ...]) -> None:
    _node(client)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{name}@latest" for name in packages]
    options = ("--no-audit", "--no-fund", "--loglevel=error")
    _run("npm", "install", "--prefix", str(folder), *options, *names)


def _node(client: Client) -> None:
    code = "process.stdout.write(process.versions.node)"
    try:
        found = _run("node", "-e", code)
    except FileNotFoundError:
        raise Missing(f"{client.name} needs Node {client.node}: run `make node`") from None
    if int(found.partition(".")[0]) < client.node:
        raise Missing(f"{client.name} needs Node {client.node}, and there is {found}")


def _with_pip(client: Client, folder: Path, packages: tuple[str, ...]) -> None:
    python = _python(client)
    _run(python, "-m", "venv", str(folder))
    options = ("-q", "--disable-pip-version-check", "--no-compile")
    _run(str(folder / "bin" / "pip"), "install", *options, *packages)


def _python(client: Client) -> str:
    """Return a Python that is new enough. Raises `Missing`."""
    code = f"import sys; sys.exit(sys.version_info < (3, {client.python}))"
    for name in (sys.executable, *(f"python3.{minor}" for minor in range(client.python, 15))):
        try:
            _run(name, "-c", code)
            return name
        except (FileNotFoundError, Missing):
            continue
    raise Missing(f"{client.name} needs Python 3.{client.python}, which is missing")


def _run(*command: str) -> str:
    try:
        found = subprocess.run(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"`{' '.join(command[:3])}` took over {SECONDS} s") from None
    if found.returncode:
        said = (found.stderr or found.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command[:3])}` failed: {' '.join(said[:3])[:300]}")
    return found.stdout.strip()


def _version(client: Client, folder: Path) -> str:
    if client.node:
        for package, *_ in client.packages:
            file = folder / "node_modules" / package / "package.json"
            if file.exists():
                return str(json.loads(file.read_text())["version"])
        raise Missing(f"{client.name} has no package.json below {os.fspath(folder)}")
    code = f"import importlib.metadata as m; print(m.version({client.packages[0][0]!r}))"
    return _run(str(folder / "bin" / "python"), "-c", code)
