"""Errors of vLLM's own server, in the form and with the codes of ours."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.http.counting import note_code
from caesura.runtime.server.http.errors import ApiError

MAX_ERROR_BYTES = 2**20
"""A longer body is no error message, and is left as it is."""
Explain = Callable[[ApiError], Awaitable[ApiError]]
"""Returns the error to send instead of one of the application's."""
_CODES = {401: "invalid_api_key", 405: "method_not_allowed", 415: "unsupported_media_type"}


class OwnErrors:
    """Middleware that rewrites the JSON errors of an application."""

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

        async def rewritten(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and message["status"] >= 400:
                held = message
            elif held is None:
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
        if error is not None and error.status >= 500 and self._explain is not None:
            error = await self._explain(error)
        await _answer(error, head, body, scope, receive, send)


async def _answer(
    error: ApiError | None,
    head: Message,
    body: bytes,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    if error is None:
        await send(head)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    kept = {
        name.decode(): value.decode()
        for name, value in head["headers"]
        if name.lower() not in (b"content-length", b"content-type")
    }
    error.headers.update(kept)
    note_code(scope, error.code)
    await error.response(scope["path"])(scope, receive, send)


def _error(status: int, body: bytes) -> ApiError | None:
    """Return the error in a body, or None if the body holds none."""
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
        return ApiError(status, message, code=_CODES.get(status))
    told = said.get("error")
    if isinstance(told, str):
        return ApiError(status, told, code=_CODES.get(status))
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        return None
    message, param, code = told["message"], told.get("param"), told.get("code")
    if not isinstance(code, str):
        code = _code(status, message)
    return ApiError(status, message, param=param if isinstance(param, str) else None, code=code)


def _code(status: int, message: str) -> str | None:
    lower = message.lower()
    if status == 400 and ("context length" in lower or "context window" in lower):
        return "context_length_exceeded"
    if status == 404 and "model" in lower:
        return "model_not_found"
    return _CODES.get(status)
