"""Screens a server's messages before the library checks them, so that one bad tool is dropped."""

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, get_args

import mcp_types
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types.methods import SERVER_RESULTS
from pydantic import ValidationError

LOG = logging.getLogger(__name__)

Item = SessionMessage | Exception

# The models by which the library checks a listed tool, one for each protocol version.
_SHAPES: set[Any] = {mcp_types.Tool} | {
    get_args(result.model_fields["tools"].annotation)[0]
    for (method, _), result in SERVER_RESULTS.items()
    if method == "tools/list" and isinstance(result, type)
}


@dataclass(slots=True)
class Heard:
    """The number of messages that a server has sent."""

    messages: int = 0


@asynccontextmanager
async def screened(
    transport: AbstractAsyncContextManager[TransportStreams], server: str, heard: Heard
) -> AsyncIterator[TransportStreams]:
    """Yield the transport without invalid tools in its lists; log a warning for each.

    The schemas of results are removed too. The library checks results against them in the event
    loop, and a hostile schema can make that take for ever.
    """
    async with transport as (read, write):
        yield _Screened(read, server, heard), write


class _Screened:
    """A stream of messages whose lists of tools hold only valid tools."""

    def __init__(self, stream: ReadStream[Item], server: str, heard: Heard) -> None:
        self._stream = stream
        self._heard = heard
        self._server = server

    @property
    def last_context(self) -> Context | None:
        """The context of the last message's sender, where the stream knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Item:
        """Return the next message."""
        return self._screen(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return self._screen(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, traceback)

    def _screen(self, item: Item) -> Item:
        self._heard.messages += 1
        if isinstance(item, SessionMessage) and isinstance(item.message, mcp_types.JSONRPCResponse):
            tools = item.message.result.get("tools")
            if isinstance(tools, list):
                item.message.result["tools"] = [each for each in tools if self._is_tool(each)]
        return item

    def _is_tool(self, given: Any) -> bool:
        if isinstance(given, dict):
            given.pop("outputSchema", None)
        try:
            for shape in _SHAPES:
                shape.model_validate(given, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            name = given.get("name") if isinstance(given, dict) else None
            place = ".".join(map(str, first["loc"]))[:100]
            said = f"{place}: {first['msg'][:200]}"
            LOG.warning("MCP server %r: skipped tool %.64r: %s", self._server, name, said)
            return False
        return True
