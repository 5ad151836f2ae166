"""Sandboxes, and the tools that share one."""

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.code import box as box_module
from caesura.tools.code.box import Bounds, Box, command, default_python, interpreter
from caesura.tools.config.toolset import Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.services import Services
from tests.kit.sandbox import has_sandbox

__all__ = ["has_sandbox"]

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture(autouse=True)
def _needs_sandbox(has_sandbox: None) -> None:
    """Skip where no sandbox can be made."""


SIZE: dict[str, Any] = {"memory_bytes": 400 * 2**20, "disk_bytes": 32 * 2**20, "processes": 24}


@pytest.fixture
def bounds() -> Bounds:
    """What a sandbox with small limits may use."""
    return Bounds(*interpreter(default_python()), **SIZE)


@pytest.fixture(scope="session")
def as_nobody() -> Iterator[list[str]]:
    """The command by which an ordinary user starts a sandbox, by the system's Python."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not Path(SYSTEM_PYTHON).exists():
        pytest.skip("needs root, setpriv and the system's Python")
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "code")
        shutil.copytree(Path(box_module.__file__).parent, source)
        for path in (Path(place), source, *source.iterdir()):
            path.chmod(0o755)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        yield [*become, *command(SYSTEM_PYTHON, source)]


@pytest.fixture(params=["this user", "nobody"])
async def box(bounds: Bounds, request: pytest.FixtureRequest) -> AsyncIterator[Box]:
    """A sandbox of this user's, and one of an ordinary user's, which has a user namespace."""
    first: list[str] = []
    if request.param == "nobody":
        first = request.getfixturevalue("as_nobody")
        bounds = Bounds(*interpreter(SYSTEM_PYTHON), **SIZE)
    box = await Box.start(bounds, first)
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
