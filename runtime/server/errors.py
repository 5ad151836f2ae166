"""Errors in the OpenAI API's form: `{"error": {message, type, param, code}}` and a status."""

import logging
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from caesura.runtime.errors import (
    CaesuraError,
    ContextOverflow,
    EngineFailed,
    LimitReached,
    UsageError,
)

log = logging.getLogger(__name__)


class ApiError(Exception):
    """An error that answers a request. `type` defaults to the one that the status implies."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or _type_of(status)
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """Return the error object, for a response or for a chunk of a stream."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> web.Response:
        """Return the whole HTTP response."""
        return web.json_response(self.body(), status=self.status, headers=self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return an error of status 400: the request is invalid."""
    return ApiError(400, message, param=param, code=code)


def from_exception(error: Exception) -> ApiError:
    """Return the error that the client gets for `error`.

    The client learns no details of an unexpected error; the log holds them.
    """
    match error:
        case ApiError():
            return error
        case ContextOverflow():
            return invalid(str(error), "messages", "context_length_exceeded")
        case LimitReached():
            # Clients retry a 408, a 429 and every 5xx on their own. A retried run would reach the
            # same limit again, after running the same tools.
            return ApiError(422, str(error), type="limit_reached", code=error.limit)
        case UsageError():
            return invalid(str(error))
        case EngineFailed():
            log.error("the engine failed: %s", error)
            return ApiError(503, "The engine has failed: restart it.", code="engine_failed")
        case web.HTTPException():
            return _from_http(error)
        case web.RequestPayloadError():
            return invalid("The server could not read the request's body.")
        case CaesuraError():
            log.error("request failed: %s", error)
    log.error("unexpected error", exc_info=error)
    return ApiError(500, "The server had an internal error; see its log for the details.")


@web.middleware
async def errors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every exception of a handler into an error object."""
    try:
        return await handler(request)
    except Exception as error:
        if client_left(request):
            raise  # a client that has left gets no answer
        return from_exception(error).response()


def client_left(request: web.Request) -> bool:
    """Return whether the connection of this request is closed or closing."""
    return request.transport is None or request.transport.is_closing()


def _type_of(status: int) -> str:
    if status >= 500:
        return "server_error"
    return {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error"
    )


def _from_http(error: web.HTTPException) -> ApiError:
    """Translate aiohttp's own errors: an unknown route, a wrong method, a too large body."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"Method {error.method} is not allowed here; allowed: {allowed}."
        return ApiError(405, message, code="method_not_allowed", headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return ApiError(404, "There is no such route.", code="unknown_url")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(413, f"The request is too large: {error.text}", code="request_too_large")
    return ApiError(error.status, error.reason)
