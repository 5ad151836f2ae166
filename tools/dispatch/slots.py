"""Limits on concurrent calls of a tool, over all sessions."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakKeyDictionary

from caesura.tools.tool import Tool


class Slots:
    """The concurrency slots of tools, shared by the sessions that share a registry.

    A tool that is made again, such as after an MCP server lists its tools again, keeps its slots.
    The slots belong to one event loop. A second loop (a second `asyncio.run` over the same
    registry) has slots of its own.
    """

    def __init__(self) -> None:
        self._semaphores: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]
        ] = WeakKeyDictionary()

    def slot(self, tool: Tool) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for a slot, in order of arrival, and holds it.

        Needs a running event loop.
        """
        if tool.concurrency is None:
            return nullcontext()
        semaphores = self._semaphores.setdefault(asyncio.get_running_loop(), {})
        key = (tool.name, tool.concurrency)
        if key not in semaphores:
            semaphores[key] = asyncio.Semaphore(tool.concurrency)
        return semaphores[key]
