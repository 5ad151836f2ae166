"""`/v1/responses` as a WebSocket: each `response.create` is answered by a response's events.

Requests of one `stream_id`, and those without one, are answered one after the other. A connection
also remembers its last responses that are not stored, so that they can be continued on it.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from caesura.runtime.server.http.connection import parsed
from caesura.runtime.server.http.errors import ApiError, from_exception, invalid
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.responses.output import Event
from caesura.runtime.server.responses.response import Part
from caesura.runtime.server.responses.schema import ResponseRequest, parse
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import Stored

MAX_STREAMS = 64
"""The most stream ids of one connection."""
MAX_REMEMBERED = 16
"""The most responses that a connection remembers without the store."""
MAX_WAITING = 64
"""The most requests of one stream that wait for the one before them."""


def socket_routes(responses: Responses) -> list[BaseRoute]:
    """Return the route of WebSocket connections."""

    async def connected(socket: WebSocket) -> None:
        await _Connection(responses, socket).serve()

    return [WebSocketRoute("/v1/responses", connected)]


class _Connection:
    """One connection, its streams, and the responses that it remembers."""

    def __init__(self, responses: Responses, socket: WebSocket) -> None:
        self._responses = responses
        self._socket = socket
        self._sending = asyncio.Lock()
        self._recent: dict[str, Stored] = {}
        self._streams: dict[str | None, _Stream] = {}

    async def serve(self) -> None:
        """Answer requests until the client leaves; then cancel what is under way."""
        await self._socket.accept()
        try:
            while True:
                await self._take(await self._socket.receive_text())
        except WebSocketDisconnect:
            pass
        except KeyError:
            await self._socket.close(1003, "Send text frames, which hold JSON.")
        finally:
            for stream in self._streams.values():
                stream.task.cancel()
            ended = (stream.task for stream in self._streams.values())
            await asyncio.gather(*ended, return_exceptions=True)

    async def _take(self, text: str) -> None:
        """Queue a request in its stream, or send an error."""
        stream_id: str | None = None
        try:
            message = await parsed(_message, text.encode())
            stream_id = _stream_id(message)
            self._stream(stream_id).put(message)
        except ApiError as error:
            await self._send(_told(error), stream_id)

    def _stream(self, stream_id: str | None) -> "_Stream":
        if stream_id not in self._streams:
            if len(self._streams) >= MAX_STREAMS:
                message = f"stream_id: a connection has at most {MAX_STREAMS} streams."
                raise invalid(message, "stream_id")
            queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_WAITING)
            task = asyncio.create_task(self._answer_all(queue, stream_id))
            self._streams[stream_id] = _Stream(queue, task)
        return self._streams[stream_id]

    async def _answer_all(
        self, queue: asyncio.Queue[dict[str, Any]], stream_id: str | None
    ) -> None:
        while True:
            message = await queue.get()
            try:
                await self._answer(message, stream_id)
            except Exception as error:
                # A continuation that failed must not be tried again on the same state.
                self._recent.pop(str(message.get("previous_response_id")), None)
                await self._send(_told(from_exception(error)), stream_id)

    async def _answer(self, message: dict[str, Any], stream_id: str | None) -> None:
        generate = message.pop("generate", None) is not False
        asked, items = await parsed(parse, json.dumps(message).encode())
        create = self._responses.create if generate else self._responses.prepare
        part, run = await create(asked, items, sender_of(self._socket), self._recent)
        try:
            async for event in part.feed.read():
                if part.feed.error is not None and part.feed.failed_first:
                    raise part.feed.error
                await self._send(event, stream_id)
        finally:
            if run is not None and not part.feed.is_ended:
                await asyncio.shield(self._responses.left(part, run))
        if part.feed.error is not None:
            self._recent.pop(str(asked.previous_response_id), None)
        else:
            self._remember(asked, part)

    def _remember(self, asked: ResponseRequest, part: Part) -> None:
        if not asked.stored:
            self._recent[part.id] = part.remembered()
            while len(self._recent) > MAX_REMEMBERED:
                del self._recent[next(iter(self._recent))]

    async def _send(self, event: Event, stream_id: str | None) -> None:
        named = event if stream_id is None else event | {"stream_id": stream_id}
        async with self._sending:
            await self._socket.send_text(json.dumps(named, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class _Stream:
    """The requests of one stream that wait, and the task that answers them."""

    queue: asyncio.Queue[dict[str, Any]]
    task: asyncio.Task[None]

    def put(self, message: dict[str, Any]) -> None:
        """Queue a request; raise `ApiError` if too many wait."""
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            message_text = f"{MAX_WAITING} requests of this stream wait already: wait for them."
            raise ApiError(429, message_text, code="too_many_requests") from None


def _message(text: bytes) -> dict[str, Any]:
    """Return a frame as a request's body; raise `ApiError` for another kind of frame."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise invalid(f"The frame is not valid JSON: {error}.") from None
    message: dict[str, Any] = read if isinstance(read, dict) else {}
    kind = message.pop("type", None)
    if kind != "response.create":
        raise invalid(f"type must be 'response.create', got {str(kind)[:40]!r}.", "type")
    if message.get("background"):
        raise invalid("background is not possible over a WebSocket: leave it out.", "background")
    message.pop("stream", None)  # a WebSocket always streams
    return message


def _stream_id(message: dict[str, Any]) -> str | None:
    """Return the request's stream, without leaving it in the request."""
    stream_id = message.pop("stream_id", None)
    if stream_id is not None and not isinstance(stream_id, str):
        raise invalid(f"stream_id must be a text, got {str(stream_id)[:40]!r}.", "stream_id")
    return stream_id


def _told(error: ApiError) -> Event:
    """Return the event for a request that was refused."""
    told = error.body()["error"] | {"code": error.code or error.type}
    return {"type": "error", "status": error.status, "error": told}
