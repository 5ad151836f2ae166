"""Sandboxes, and the tools that share one."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.code.box import Bounds, Box, BoxFailed, default_python, interpreter
from caesura.tools.code.probe import check
from caesura.tools.config.toolset import Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.services import Services


@pytest.fixture(scope="session", autouse=True)
def _has_sandbox() -> None:
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
def bounds() -> Bounds:
    """What a sandbox with small limits may use."""
    python, readable = interpreter(default_python())
    size = {"memory_bytes": 400 * 2**20, "disk_bytes": 32 * 2**20, "processes": 24}
    return Bounds(python, readable, **size)


@pytest.fixture
async def box(bounds: Bounds) -> AsyncIterator[Box]:
    box = await Box.start(bounds)
    yield box
    await box.aclose()


Tools = Callable[..., Any]


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Tools]:
    """`tools(python={...}, shell={...})` makes tools; what it returns calls one by name."""
    async with AsyncExitStack() as stack:

        async def make(**settings: dict[str, Any]) -> Any:
            services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path)
            toolset = await stack.enter_async_context(Toolset(services, settings))
            made = [toolset.make(name) for name in settings]
            dispatcher = Dispatcher(Registry(made))
            stack.push_async_callback(dispatcher.aclose)

            async def call(name: str, **arguments: Any) -> ToolResult:
                return await dispatcher.run(ToolCall("c", name, json.dumps(arguments)))

            return call

        yield make
