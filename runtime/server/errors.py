"""Errors as the OpenAI API tells them: `{"error": {message, type, param, code}}` and a status."""

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
    """A request that is answered with an error; `type` defaults to what the status implies."""

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
        """The error object, as a response or a chunk of a stream holds it."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> web.Response:
        """The whole HTTP answer."""
        return web.json_response(self.body(), status=self.status, headers=self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The client's mistake, status 400."""
    return ApiError(400, message, param=param, code=code)


def from_exception(error: Exception) -> ApiError:
    """What the client is told of `error`; of one that nobody foresaw, nothing but that it was."""
    match error:
        case ApiError():
            return error
        case ContextOverflow():
            return invalid(str(error), "messages", "context_length_exceeded")
        case LimitReached():
            # Not in the 5xx range and neither 408 nor 429: clients repeat those on their own, and
            # a run that used up its limits would only use them up again, tool calls included.
            return ApiError(422, str(error), type="limit_reached", code=error.limit)
        case UsageError():
            return invalid(str(error))
        case EngineFailed():
            log.error("the engine failed: %s", error)
            return ApiError(503, "The engine cannot decode any more.", code="engine_failed")
        case web.HTTPException():
            return _from_http(error)
        case web.RequestPayloadError():
            return invalid("The request's body could not be read.")
        case CaesuraError():
            log.error("request failed: %s", error)
    log.error("unexpected error", exc_info=error)
    return ApiError(500, "The server had an internal error; its log holds the details.")


@web.middleware
async def errors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with an error object whatever a handler raises."""
    try:
        return await handler(request)
    except Exception as error:
        if client_left(request):
            raise  # nobody is there to be answered, and nothing is wrong
        return from_exception(error).response()


def client_left(request: web.Request) -> bool:
    """Whether the connection of this request is gone."""
    return request.transport is None or request.transport.is_closing()


def _type_of(status: int) -> str:
    if status >= 500:
        return "server_error"
    return {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error"
    )


def _from_http(error: web.HTTPException) -> ApiError:
    """aiohttp's own answers: no such route, wrong method, too large a body."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"Method {error.method} is not allowed here; allowed: {allowed}."
        return ApiError(405, message, code="method_not_allowed", headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return ApiError(404, "There is no such route.", code="unknown_url")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(413, f"The request is too large: {error.text}", code="request_too_large")
    return ApiError(error.status, error.reason)
