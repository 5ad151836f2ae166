"""One connection to a server; the library requires that one task enters, uses and leaves it.

The streamable HTTP transport limits the size of a server's answers. The URL is the operator's and
may lead to a private address. Redirects stay within its origin.
"""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.context import trace_headers
from caesura.tools.errors import ToolError
from caesura.tools.mcp import stdio
from caesura.tools.mcp.listing import MAX_REASON_CHARACTERS, output_of
from caesura.tools.mcp.screen import Heard, screened
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.mcp.stdio import Child
from caesura.tools.result import Output

CONNECT_SECONDS = 10.0
_OF_THE_SESSION = re.compile(r"session|not initiali[sz]ed", re.IGNORECASE)


@asynccontextmanager
async def http_transport(settings: ServerSettings) -> AsyncIterator[TransportStreams]:
    """Yield the streams of messages to and from a server's endpoint."""
    assert settings.url is not None
    client = httpx2.AsyncClient(
        headers={"User-Agent": "caesura", **settings.headers, "Accept-Encoding": "identity"},
        # A call may be silent for as long as its own time-out allows.
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        transport=_Bounded(settings.max_message_bytes),
        trust_env=False,  # a proxy would replace our transport
    )
    async with (
        client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=settings.max_message_bytes
        ) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses compressed answers and those above a size limit.

    A refusal of the session becomes a 404 without a body, which the library tells as the end of
    the session. It would tell a body's own error as one of the call, and keep the session.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, with the trace headers of the current call."""
        # The library sends in the context of the caller.
        request.headers.update(trace_headers())
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        # The library bounds each event; a stream of events may last for days.
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _BoundedStream(
            response.stream,
            None if is_stream else self._max_bytes,
            "the server compressed its answer unasked" if encoding != "identity" else "",
        )
        if response.status_code in (400, 404) and "mcp-session-id" in request.headers:
            return await _refused(response)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int | None, refused: str) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._refused = refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # The library turns StreamError into an error answer; others would end the connection.
        if self._refused:
            raise httpx2.StreamError(self._refused)
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if self._max_bytes is not None and size > self._max_bytes:
                raise httpx2.StreamError(f"the server sent more than {self._max_bytes} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _refused(response: httpx2.Response) -> httpx2.Response:
    """Return an equal response, or a plain 404 if the server does not know the session.

    By the protocol a 404 within a session says so, whatever its body; some servers say it with a
    400. Only an error about the method or its parameters is about something else.
    """
    try:
        body = await response.aread()
        error = json.loads(body)["error"]
        code, message = error["code"], str(error["message"])
    except (httpx2.StreamError, ValueError, LookupError, TypeError, RecursionError):
        code, message, body = None, "", b""
    finally:
        await response.aclose()
    about_the_call = code in (mcp_types.METHOD_NOT_FOUND, mcp_types.INVALID_PARAMS)
    if response.status_code == 404:
        forgotten = not about_the_call
    else:
        forgotten = not about_the_call and _OF_THE_SESSION.search(message) is not None
    if forgotten:
        return httpx2.Response(404)
    return httpx2.Response(response.status_code, headers=response.headers, content=body)


LOG = logging.getLogger(__name__)
for _name in ("mcp", "client"):
    # The library logs a stack trace for each unreadable message. The results report it instead.
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(logging.CRITICAL)

MAX_PAGES = 100
MAX_TOOLS = 1000
_CLOSED = (mcp_types.CONNECTION_CLOSED, "Connection closed")


class Lost(ToolError):
    """The connection has ended or was never made; the message says why."""


class Forgotten(Lost):
    """The server refused a request since it does not know the session; nothing has run."""


class Connection:
    """A connected server. `ended` is set when it can answer no more requests."""

    def __init__(
        self,
        client: Client,
        settings: ServerSettings,
        child: Child | None,
        ended: asyncio.Event,
        changed: asyncio.Event,
        heard: Heard,
    ) -> None:
        self._client = client
        self._timeout_seconds = settings.timeout_seconds or math.inf
        self._child = child
        self._heard = heard
        self.forgotten = False
        """Whether the connection ended since the server has forgotten the session."""
        self.ended = ended
        self.changed = changed
        """Set when the tools may have changed, or when listing them must prove the server alive."""

    def why(self) -> str:
        """Return why the connection ended, as far as known."""
        if self._child is not None:
            return self._child.why()
        return "the server forgot the session" if self.forgotten else "the connection was closed"

    async def list_tools(self) -> list[mcp_types.Tool]:
        """Return all tools of the server, in its order, at most MAX_TOOLS.

        Of several tools of one name the first is taken, since a call names no other. An empty
        cursor, or one that has come before, ends the list.
        """
        self.changed.clear()
        found: dict[str, mcp_types.Tool] = {}
        cursors: set[str | None] = {"", None}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for each in page.tools:
                found.setdefault(each.name, each)
            cursor = page.next_cursor
            if cursor in cursors or len(found) >= MAX_TOOLS:
                break
            cursors.add(cursor)
        return list(found.values())[:MAX_TOOLS]

    async def call(
        self, tool: str, arguments: dict[str, Any], progress: ProgressFnT, store: ArtifactStore
    ) -> Output:
        """Call a tool; a cancellation is passed on to the server.

        Raises Forgotten where nothing ran, Lost, and ToolError with the server's own error message.
        """
        began, before = time.monotonic(), self._heard.messages
        try:
            return await self._call(tool, arguments, progress, store)
        except asyncio.CancelledError:
            timed_out = time.monotonic() - began >= self._timeout_seconds
            if timed_out and self._heard.messages == before:
                # The server may hang: if it does not list its tools either, the connection ends.
                self.changed.set()
            raise

    async def _call(
        self, tool: str, arguments: dict[str, Any], progress: ProgressFnT, store: ArtifactStore
    ) -> Output:
        try:
            result = await self._client.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            if _is_forgotten(error):
                self.forgotten = True
            if _is_end(error):
                self.ended.set()
                raise (Forgotten if self.forgotten else Lost)(self.why()) from None
            raise ToolError(error.error.message[:MAX_REASON_CHARACTERS]) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:200]
            raise ToolError(
                f"the server's result is not valid MCP: {place}: {first['msg'][:200]}"
            ) from None
        except RuntimeError as error:
            raise ToolError(str(error).partition("\n")[0][:MAX_REASON_CHARACTERS]) from None
        return await output_of(result, store)

    async def listen(self) -> None:
        """Listen for changed tools; a server of the 2026 protocol reports them only on request."""
        capability = self._client.server_capabilities.tools
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        if capability is None or not capability.list_changed:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.changed.set()
        except Exception as error:
            LOG.debug("no further reports of changed tools: %s", error)


@asynccontextmanager
async def connect(name: str, settings: ServerSettings) -> AsyncIterator[Connection]:
    """Connect and initialise the session, within `settings.start_seconds`.

    Raises SetupError, TimeoutError, and what the library and the server raise.
    """
    ended, changed = asyncio.Event(), asyncio.Event()
    child = None if settings.command is None else await Child.start(settings)
    transport = (
        http_transport(settings)
        if child is None
        else stdio.transport(child, settings.max_message_bytes, ended)
    )

    heard = Heard()

    async def notified(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            changed.set()

    client = Client(
        screened(transport, name, heard),
        message_handler=notified,
        client_info=mcp_types.Implementation(name="caesura", version="1"),
        elicitation_callback=_decline,
        cache=None,
    )
    async with AsyncExitStack() as stack:
        if child is not None:
            stack.push_async_callback(child.end)
        try:
            async with asyncio.timeout(settings.start_seconds):
                await stack.enter_async_context(client)
        except (MCPError, BaseExceptionGroup) as error:
            if child is None or not _is_end(error):
                raise
            raise ToolError(child.why()) from None
        connection = Connection(client, settings, child, ended, changed, heard)
        stack.callback(ended.set)
        listening = asyncio.ensure_future(connection.listen())
        try:
            yield connection
        finally:
            listening.cancel()
            await asyncio.wait([listening])


def _is_end(error: BaseException) -> bool:
    """Return whether an error means that the connection has ended."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_end, error.exceptions))
    # Servers use the library's code for errors of their own, so its text counts too.
    return isinstance(error, MCPError) and (
        (error.error.code, error.error.message) == _CLOSED or _is_forgotten(error)
    )


def _is_forgotten(error: MCPError) -> bool:
    """Return whether an HTTP server did not know the session, as after its restart."""
    # The library's text for a 404 within a session; `http` makes one of all such refusals.
    return error.error.message == "Session terminated"


async def _decline(
    context: ClientRequestContext, params: mcp_types.ElicitRequestParams
) -> mcp_types.ElicitResult:
    """Decline a server's form: no user is there to fill it in."""
    return mcp_types.ElicitResult(action="decline")
