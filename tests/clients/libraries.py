"""The environments of the client libraries, which `make clients` sets up, and what is in them."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.clients.servers import ROOT

PYTHON = ROOT / ".cache" / "clients" / "bin"
"""The programs of requirements/clients.txt."""
NODE = ROOT / ".cache" / "clients-node"
"""The packages of tests/clients/node/package-lock.json."""
_NODE_SOURCE = ROOT / "tests" / "clients" / "node"
_NODE_PROGRAMS = ROOT / ".cache" / "node" / "bin"
"""Node from PyPI, where the machine's is missing or too old."""
_PYTHON_LIBRARIES = (
    "openai",
    "openai-agents",
    "pydantic-ai-slim",
    "langchain-openai",
    "langchain",
    "litellm",
    "smolagents",
    "anthropic",
    "llm-comply",
)
_NODE_LIBRARIES = ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "compatcanary")


def check_commands() -> list[list[str]]:
    """Return the commands that check a server, without its address; see `environment`.

    Raises `FileNotFoundError` if an environment is missing.
    """
    for folder in (PYTHON, NODE):
        if not folder.exists():
            raise FileNotFoundError(
                f"the environment {folder.relative_to(ROOT)} of the client libraries is missing: "
                "run `make clients`"
            )
    # Modules of Node find packages beside themselves, not in another folder.
    for module in _NODE_SOURCE.glob("*.mjs"):
        shutil.copy(module, NODE)
    return [
        [str(PYTHON / "python"), "-m", "tests.clients.checks"],
        ["node", str(NODE / "checks.mjs")],
    ]


def environment() -> dict[str, str]:
    """Return the variables under which the libraries' programs run."""
    path = f"{_NODE_PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}


def versions() -> dict[str, str]:
    """Return the versions of the libraries in the environments of the checks."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    command = [str(PYTHON / "python"), "-c", code, *_PYTHON_LIBRARIES]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {
        **dict(zip(_PYTHON_LIBRARIES, found, strict=True)),
        **{name: _node_version(NODE / "node_modules" / name) for name in _NODE_LIBRARIES},
    }


def _node_version(package: Path) -> str:
    return str(json.loads((package / "package.json").read_text())["version"])
