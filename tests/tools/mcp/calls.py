"""Calling a server's tools as a model does, and waiting for what must come."""

import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caesura.tools.dispatcher import Dispatcher
from caesura.tools.mcp import MCPServer
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult

HERE = Path(__file__).parent
PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
WAIT_SECONDS = 60.0


class Caller:
    """Calls the tools of a server through a dispatcher of its own."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server

    async def __call__(self, name: str, /, **arguments: object) -> ToolResult:
        async with Dispatcher(Registry(self.server.tools)) as dispatcher:
            return await dispatcher.run(ToolCall("call", name, json.dumps(arguments)))


async def until(get: Callable[[], Any], holds: Callable[[Any], bool]) -> None:
    """Wait until what `get` gives, or what its coroutine returns, `holds`."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            value = get()
            if inspect.isawaitable(value):
                value = await value
            if holds(value):
                return
            await asyncio.sleep(0.05)
