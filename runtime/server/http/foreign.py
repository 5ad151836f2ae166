"""Errors of an application behind ours, in the form and the words of ours.

vLLM's server tells what pydantic says of a body, what its own code raises, and what only Python's
programmers understand. Clients get the field and what is wrong with it; the log has the rest.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.http.errors import OVERFLOW, ApiError, overflow_in
from caesura.runtime.server.http.exchange import count_as, note_code
from caesura.runtime.server.http.wording import plain

log = logging.getLogger(__name__)

MAX_ERROR_BYTES = 2**20
"""A longer body is no error message, and is left as it is."""
Explain = Callable[[ApiError], Awaitable[ApiError]]
"""Returns the error to send instead of one of the application's."""
FAILED = "The engine failed at this request, and lives: send it again."
_CODES = {401: "invalid_api_key", 405: "method_not_allowed", 415: "unsupported_media_type"}
_IN_STREAM = b'"error":'
"""What an event holds that tells an error; in a model's text its quotes are escaped."""


class OwnErrors:
    """Middleware that rewrites the JSON errors of an application, and those in its streams."""

    def __init__(self, app: ASGIApp, explain: Explain | None = None) -> None:
        """Create it; `explain` may replace errors of status 500 and above."""
        self._app = app
        self._explain = explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and an error in the form of the path's API."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held: Message | None = None
        pieces: list[bytes] = []
        streams = False

        async def rewritten(message: Message) -> None:
            nonlocal held, streams
            if message["type"] == "http.response.start" and message["status"] >= 400:
                held = message
            elif held is None:
                streams = streams or _streams(message)
                if streams and _IN_STREAM in message.get("body", b""):
                    message = {**message, "body": await self._events(scope, message["body"])}
                await send(message)
            else:
                pieces.append(message.get("body", b""))
                if not message.get("more_body", False):
                    await self._answer(held, b"".join(pieces), scope, receive, send)

        await self._app(scope, receive, rewritten)

    async def _answer(
        self, head: Message, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        error = _error(head["status"], body)
        if error is None:
            await send(head)
            await send({"type": "http.response.body", "body": body, "more_body": False})
            return
        error = await self._own(error)
        kept = {
            name.decode(): value.decode()
            for name, value in head["headers"]
            if name.lower() not in (b"content-length", b"content-type")
        }
        error.headers.update(kept)
        note_code(scope, error.code)
        await error.response(scope["path"])(scope, receive, send)

    async def _events(self, scope: Scope, body: bytes) -> bytes:
        """Return the events of a part of a stream, with errors in our words."""
        lines = body.split(b"\n")
        for number, line in enumerate(lines):
            prefix, data = line[:6], line[6:]
            error = _error(0, data) if prefix == b"data: " and _IN_STREAM in data else None
            if error is None:
                continue
            error = await self._own(error)
            count_as(scope, error.status, error.code)
            lines[number] = prefix + json.dumps(error.body_on(scope["path"])).encode()
        return b"\n".join(lines)

    async def _own(self, error: ApiError) -> ApiError:
        if error.status >= 500 and self._explain is not None:
            return await self._explain(error)
        return error


def _streams(message: Message) -> bool:
    """Return whether an answer begins that is a stream of events."""
    headers = {name.lower(): value for name, value in message.get("headers", ())}
    return bool(headers.get(b"content-type", b"").startswith(b"text/event-stream"))


def _error(status: int, body: bytes) -> ApiError | None:
    """Return the error in a body, or None if the body holds none.

    Where `status` is 0, the error itself tells its status, as those in streams do.
    """
    if len(body) > MAX_ERROR_BYTES:
        return None
    try:
        said: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    if set(said) == {"detail"}:
        if status == 404:
            return ApiError(404, "There is no such route.", code="unknown_url")
        detail = said["detail"]
        message = detail if isinstance(detail, str) else json.dumps(detail)
        return ApiError(status, *plain(message), code=_CODES.get(status))
    told = said.get("error")
    if isinstance(told, str):
        return ApiError(status or 500, *plain(told), code=_CODES.get(status))
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        return None
    return _of_object(status or _status_in(told), told)


def _of_object(status: int, told: Mapping[str, Any]) -> ApiError:
    message, param, code = told["message"], told.get("param"), told.get("code")
    if status == 500:
        log.error("vLLM's server failed at a request: %s", message)
        return ApiError(500, FAILED, code="request_failed")
    if not isinstance(code, str):
        code = _code(status, message)
    counts = overflow_in(message) if code == OVERFLOW else None
    message, field = plain(message, param if isinstance(param, str) else None)
    return ApiError(status, message, field, code=code, overflow=counts)


def _status_in(told: Mapping[str, Any]) -> int:
    """Return the status of an error in a stream: OpenAI's form has it as code, Anthropic's none."""
    code = told.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return 400 if told.get("type") in ("invalid_request_error", "BadRequestError") else 500


def _code(status: int, message: str) -> str | None:
    lower = message.lower()
    if status == 400 and ("context length" in lower or "context window" in lower):
        return OVERFLOW
    if status == 404 and "model" in lower:
        return "model_not_found"
    return _CODES.get(status)
