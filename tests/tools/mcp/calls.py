"""Calling a server's tools as a model does, and waiting for what must come."""

import json
from pathlib import Path

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
