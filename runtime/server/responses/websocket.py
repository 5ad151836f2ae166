"""`/v1/responses` as a WebSocket: each `response.create` is answered by a response's events.

A `response.cancel` ends the response under way in its stream, or the one that it names. A
`response.steer` tells the model something while a response is under way. That one ends at a safe
place, and its successor begins by itself.
Requests of one `stream_id`, and those without one, are answered one after the other. A connection
also remembers its last responses that are not stored, so that they can be continued on it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from caesura.runtime.server.http.connection import parsed
from caesura.runtime.server.http.errors import ApiError, from_exception, invalid
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.responses.output import Event
from caesura.runtime.server.responses.response import Part
from caesura.runtime.server.responses.run import LiveRun
from caesura.runtime.server.responses.schema import ResponseRequest, parse
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.steering import (
    ENDED,
    NOT_FOUND,
    refused,
    required_input,
)
from caesura.runtime.server.responses.store import Item, Stored

CREATE, CANCEL, STEER = "response.create", "response.cancel", "response.steer"
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
        self._queued: dict[str, list[Item]] = {}
        """What waits for the next request behind a response, which has calls of the client."""

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
        """Queue a request in its stream, or cancel one, or send an error."""
        stream_id: str | None = None
        try:
            message = await parsed(_message, text.encode())
            if message.get("type") == STEER:
                await self._steer(message)
                return
            stream_id = _stream_id(message)
            if message.pop("type") == CANCEL:
                self._cancel(message.get("response_id"), stream_id)
            else:
                self._stream(stream_id).put(message)
        except ApiError as error:
            await self._send(_told(error), stream_id)

    async def _steer(self, message: dict[str, Any]) -> None:
        """Steer a response of this connection, and tell whether it was accepted."""
        target, given = message.get("previous_response_id"), message.get("input")
        stream = next((s for s in self._streams.values() if s.response_id == target), None)
        try:
            if stream is None or stream.part is None:
                raise refused(NOT_FOUND, f"This connection has no response {target!r:.80} now.")
            steer = self._responses.steer(given, target, sender_of(self._socket))
        except ApiError as error:
            told = {"input": given, "previous_response_id": target}
            await self._send(_steer_failed(error, told), None if stream is None else stream.id)
            return
        about = {"id": steer.id, "previous_response_id": target}
        event = {"type": "response.steer.accepted", "steer": about}
        await self._send(event | {"sequence_number": len(stream.part.feed)}, stream.id)

    async def _not_told(self, part: Part, run: LiveRun, stream: "_Stream") -> None:
        """Tell what becomes of input that a response ended before."""
        needed = required_input(part.answer.resource.output)
        for steer in run.untold():
            about = {"id": steer.id, "previous_response_id": steer.target}
            if needed:
                if not run.is_parked:  # a run that waits for approvals keeps it by itself
                    self._queued.setdefault(part.id, []).extend(steer.items)
                event: Event = {
                    "type": "response.steer.pending",
                    "reason": "waiting_for_required_input",
                    "required_input": needed,
                    "steer": about,
                    "sequence_number": len(part.feed),
                }
            else:
                error = refused(ENDED, f"{part.id} ended before the model was told.")
                event = _steer_failed(error, about | {"input": steer.given}, len(part.feed))
            await self._send(event, stream.id)

    def _cancel(self, response_id: object, stream_id: str | None) -> None:
        """Cancel the response under way; raise `ApiError` if there is none."""
        if response_id is None:
            found = self._streams.get(stream_id)
        else:
            streams = self._streams.values()
            found = next((each for each in streams if each.response_id == response_id), None)
        if found is None or not found.cancel():
            what = "in this stream" if response_id is None else f"with id {response_id!r:.80}"
            message = f"There is no response {what} to cancel."
            raise invalid(message, code="response_cancel_not_active")

    def _stream(self, stream_id: str | None) -> "_Stream":
        if stream_id not in self._streams:
            if len(self._streams) >= MAX_STREAMS:
                message = f"stream_id: a connection has at most {MAX_STREAMS} streams."
                raise invalid(message, "stream_id")
            self._streams[stream_id] = _Stream(stream_id, self._answer)
        return self._streams[stream_id]

    async def _answer(self, message: dict[str, Any], stream: "_Stream") -> None:
        try:
            await self._events(message, stream)
        except Exception as error:
            # A continuation that failed must not be tried again on the same state.
            self._recent.pop(str(message.get("previous_response_id")), None)
            await self._send(_told(from_exception(error)), stream.id)

    async def _events(self, message: dict[str, Any], stream: "_Stream") -> None:
        asked, items = await parsed(parse, json.dumps(message).encode())
        items = [*self._queued.pop(str(asked.previous_response_id), ()), *items]
        create = self._responses.create if asked.generates else self._responses.prepare
        part, run = await create(asked, items, sender_of(self._socket), self._recent)
        following: Part | None = part
        while following is not None:
            part = following
            try:
                stream.began(part, run)
                async for event in part.feed.read():
                    if part.feed.error is not None and part.feed.failed_first:
                        raise part.feed.error
                    await self._send(event, stream.id)
            finally:
                if run is not None and not part.feed.is_ended:
                    await asyncio.shield(self._responses.left(part, run))
            if part.feed.error is not None:
                self._recent.pop(str(part.answer.resource.request.previous_response_id), None)
            else:
                self._remember(asked, part)
            following = part.successor
        if run is not None:
            await self._not_told(part, run, stream)

    def _remember(self, asked: ResponseRequest, part: Part) -> None:
        if not asked.stored:
            self._recent[part.id] = part.remembered()
            while len(self._recent) > MAX_REMEMBERED:
                del self._recent[next(iter(self._recent))]

    async def _send(self, event: Event, stream_id: str | None) -> None:
        named = event if stream_id is None else event | {"stream_id": stream_id}
        async with self._sending:
            await self._socket.send_text(json.dumps(named, separators=(",", ":")))


class _Stream:
    """The requests of one stream that wait, and the task that answers them one by one."""

    def __init__(
        self,
        stream_id: str | None,
        answer: "Callable[[dict[str, Any], _Stream], Awaitable[None]]",
    ) -> None:
        self.id = stream_id
        self._answer = answer
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_WAITING)
        self.part: Part | None = None
        """The response under way."""
        self._run: LiveRun | None = None
        self._cancelling: asyncio.Task[None] | None = None
        self._is_busy = self._is_cancelled = False
        self.task = asyncio.create_task(self._answer_all())

    @property
    def response_id(self) -> str | None:
        """The id of the response under way."""
        return None if self.part is None else self.part.id

    def put(self, message: dict[str, Any]) -> None:
        """Queue a request; raise `ApiError` if too many wait."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            message_text = f"{MAX_WAITING} requests of this stream wait already: wait for them."
            raise ApiError(429, message_text, code="too_many_requests") from None

    def began(self, part: Part, run: LiveRun | None) -> None:
        """Note the response that answers the request, which may be cancelled already."""
        self.part, self._run = part, run
        if self._is_cancelled:
            self._stop()

    def cancel(self) -> bool:
        """Cancel the response under way, or about to begin; return False if there is none."""
        if not self._is_busy and self._queue.empty():
            return False
        self._is_cancelled = True
        self._stop()
        return True

    def _stop(self) -> None:
        if self._run is not None and self._cancelling is None:
            self._cancelling = asyncio.create_task(self._run.cancel())

    async def _answer_all(self) -> None:
        while True:
            message = await self._queue.get()
            self._is_busy = True
            await self._answer(message, self)
            self.part = self._run = self._cancelling = None
            self._is_busy = self._is_cancelled = False


def _message(text: bytes) -> dict[str, Any]:
    """Return a frame as a request's body; raise `ApiError` for another kind of frame."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise invalid(f"The frame is not valid JSON: {error}.") from None
    message: dict[str, Any] = read if isinstance(read, dict) else {}
    kind = message.get("type")
    if kind not in (CREATE, CANCEL, STEER):
        known = f"{CREATE!r}, {CANCEL!r} or {STEER!r}"
        raise invalid(f"type must be {known}, got {str(kind)[:40]!r}.", "type")
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


def _steer_failed(error: ApiError, steer: dict[str, Any], number: int = 0) -> Event:
    """Return the event for input that does not reach a response, which the client has back."""
    told = {"type": "invalid_request_error", "code": error.code, "message": error.message}
    failed = {"type": "response.steer.failed", "error": told, "steer": steer}
    return failed | {"sequence_number": number}


def _told(error: ApiError) -> Event:
    """Return the event for a request that was refused."""
    told = error.body()["error"] | {"code": error.code or error.type}
    return {"type": "error", "status": error.status, "error": told}
