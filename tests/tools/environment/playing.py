"""Sessions that play, through the dispatcher, as an agent's do."""

import asyncio
import importlib.util
import itertools
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.toolset import Toolset
from caesura.tools.context import ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.services import Services
from caesura.tools.tool import Tool
from tests.kit.processes import lives, nothing_left, started

FROZEN_LAKE = {"backend": "gymnasium", "id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}
_IDS = itertools.count()


class Player:
    """One session with the tool."""

    def __init__(self, tool: Tool, run: ToolRun | None = None) -> None:
        self.dispatcher = Dispatcher(Registry([tool]), run)

    def start(self, action: str) -> "asyncio.Task[ToolResult]":
        call = ToolCall(f"call_{next(_IDS)}", "environment", json.dumps({"action": action}))
        return self.dispatcher.start(call)

    async def do(self, action: str) -> str:
        return (await self.start(action)).content

    async def leave(self) -> None:
        await self.dispatcher.aclose()


@asynccontextmanager
async def opened(directory: Path, **settings: Any) -> AsyncIterator[Tool]:
    """The tool, made as a configuration has it; nothing may be left of it in the end.

    Without spares unless they are asked for: most tests need none.
    """
    if "backend" not in settings:
        need_alfworld()
    settings = {"spares": 0, **settings}
    async with nothing_left(), toolset(directory, settings) as tools:
        yield tools.make("environment")


def need_alfworld() -> None:
    """Skip the test where set-up could not build ALFWorld; fail it where CI asks for it."""
    if importlib.util.find_spec("alfworld") is None:
        if os.environ.get("CAESURA_REQUIRE_ALFWORLD"):
            pytest.fail("ALFWorld is not installed: see .venv/alfworld.log")
        pytest.skip("needs ALFWorld, which takes a C++ compiler", allow_module_level=True)


def toolset(directory: Path, settings: Mapping[str, Any]) -> Toolset:
    services = Services(ArtifactStore(directory / "artifacts"), directory / "data")
    return Toolset(services, {"environment": settings})


async def processes(count: int, before: set[int]) -> bool:
    """Whether, in a while, as many workers run besides those `before`.

    Each is two processes: the keeper, and the one that works.
    """
    for _ in range(2000):
        if sum(map(lives, started() - before)) == 2 * count:
            return True
        await asyncio.sleep(0.01)
    return False
