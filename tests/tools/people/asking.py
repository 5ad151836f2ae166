"""People on a file of their own, and calls through the real dispatcher."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from caesura.tools.context import Scope, ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import Pending, People
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.tool import Tool
from tests.kit.waiting import until

SAID = "digest of what was said"


class Asking:
    """Makes people and sessions; all of them end with the test."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self._stack = stack
        self._calls = 0

    def people(self, *arguments: Any, path: Path | None = None, **options: Any) -> People:
        people = People(path or self.path, *arguments, **options)
        self._stack.push_async_callback(people.aclose)
        return people

    def session(
        self,
        *tools: Tool,
        conversation: str = "",
        name: str = "s",
        asker: str = "",
        tenant: str = "",
        usable: Callable[[], Awaitable[None]] | None = None,
    ) -> Dispatcher:
        run = ToolRun(Scope(name), conversation, asker, tenant, usable)
        dispatcher = Dispatcher(Registry(tools), run)
        self._stack.push_async_callback(dispatcher.aclose)
        return dispatcher

    def call(self, session: Dispatcher, tool: str, /, **arguments: Any) -> asyncio.Task[ToolResult]:
        self._calls += 1
        return session.start(ToolCall(f"call_{self._calls}", tool, json.dumps(arguments)))

    async def opened(self, people: People, count: int = 1) -> Pending:
        """Wait until so many items are open; the latest."""
        await until(lambda: len(people.waited_for) >= count)
        return people.waited_for[-1]
