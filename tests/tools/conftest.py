"""Built-in tools, made as a server makes them and called as a model calls them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.toolset import Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.services import Services

Call = Callable[..., Any]


@pytest.fixture
async def using(tmp_path) -> AsyncIterator[Callable[..., Call]]:
    """`using(name, **settings)` makes a tool; what it returns calls it, and has it as `tool`."""
    async with AsyncExitStack() as stack:

        async def make(name: str, *, allow_private: bool = False, **settings: Any) -> Call:
            services = Services(ArtifactStore(tmp_path / "artifacts"), tmp_path, allow_private)
            toolset = await stack.enter_async_context(Toolset(services, {name: settings}))
            tool = toolset.make(name)
            dispatcher = Dispatcher(Registry([tool]))
            stack.push_async_callback(dispatcher.aclose)

            async def call(**arguments: Any) -> ToolResult:
                return await dispatcher.run(ToolCall("c", name, json.dumps(arguments)))

            call.tool = tool  # type: ignore[attr-defined]
            return call

        yield make
