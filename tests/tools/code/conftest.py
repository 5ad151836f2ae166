"""Sandboxes, and the tools that share one."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.code.box import Bounds, Box, default_python, interpreter
from caesura.tools.config.toolset import Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.services import Services
from tests.kit.sandbox import has_sandbox

__all__ = ["has_sandbox"]


@pytest.fixture(autouse=True)
def _needs_sandbox(has_sandbox: None) -> None:
    """Skip where no sandbox can be made."""


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
