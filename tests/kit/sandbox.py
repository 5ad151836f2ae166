"""Whether this machine can have a sandbox, and the tools that run code in one."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.code.box import BoxFailed, default_python
from caesura.tools.code.probe import check
from caesura.tools.config.toolset import Toolset
from caesura.tools.services import Services
from caesura.tools.tool import Tool


@pytest.fixture(scope="session")
def has_sandbox() -> None:
    """Skip where this machine lets nobody make namespaces; elsewhere a sandbox must be safe."""
    flags = ["--mount", "--pid", "--net", "--fork", "--mount-proc"]
    command = ["unshare", *flags, *(["--map-root-user"] if os.geteuid() else []), "true"]
    if shutil.which("unshare") and subprocess.run(command, capture_output=True).returncode == 0:
        assert check(default_python())
        return
    try:
        check(default_python())
    except BoxFailed as error:
        pytest.skip(str(error))


@pytest.fixture
async def code_tools(tmp_path: Path, has_sandbox: None) -> AsyncIterator[list[Tool]]:
    """`python`, `shell` and `files`."""
    services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path / "data")
    settings = {"python": {"seconds": 20.0}, "shell": {}, "files": {}}
    async with Toolset(services, settings) as tools:
        yield [tools.make(name) for name in settings]
