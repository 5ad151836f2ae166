"""Answers in JSON, and errors in the form of the API that a path belongs to.

OpenAI's form is `{"error": {message, type, param, code}}`. The routes of Anthropic's API have its
form, `{"type": "error", "error": {type, message}}`.
"""

import json
import logging
import re
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from caesura.runtime.errors import (
    CaesuraError,
    ContextOverflow,
    EngineFailed,
    InvalidOutput,
    LimitReached,
    RequestAborted,
    RequestFailed,
    UsageError,
)
from caesura.runtime.run.media import MediaRefused
from caesura.runtime.server.http.wording import INSIDES, plain, without_classes
from caesura.scheduler.errors import RepeatedDeaths

MESSAGES = "/v1/messages"
"""The route whose errors, and those of the routes below it, have this form."""
_COUNTED = re.compile(r"(?:contains|Input length|prompt length) \(?(\d+)\b(?! characters)")
_WINDOW = re.compile(r"(?:maximum context length(?: is)?|max_model_len) \(?(\d+)")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
OVERFLOW = "context_length_exceeded"
"""The code of a prompt that does not fit the context window."""
NO_THREADS = "thread_unsupported_request"
"""The code on which Anthropic's clients send the whole conversation with each request."""


def speaks_anthropic(path: str) -> bool:
    """Return whether the clients of a path expect Anthropic's API."""
    return path == MESSAGES or path.startswith(f"{MESSAGES}/")


Overflow = tuple[int, int]
"""The tokens of a conversation, and the most that fit."""


def anthropic_error(
    status: int, message: str, code: str | None, overflow: Overflow | None = None
) -> dict[str, Any]:
    """Return the error object, for a response or for an event of a stream.

    Most of Anthropic's errors have no codes. Agents recognise an overflow of the context window
    by the words with which Anthropic's message begins, and take from its numbers how much to drop.
    """
    if code == OVERFLOW:
        counts = "" if overflow is None else f"{overflow[0]} tokens > {overflow[1]} maximum. "
        message = f"prompt is too long: {counts}{message}"
    kind = "api_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if code == NO_THREADS:
        error["details"] = {"error_code": code, "unsupported": ["thread"]}
    return {"type": "error", "error": error}


class JsonAnswer(JSONResponse):
    """A JSON answer in ASCII, since a model's text may hold characters that UTF-8 lacks."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode()


log = logging.getLogger(__name__)


class ApiError(Exception):
    """An error that answers a request. `type` defaults to the one that the status implies."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        type: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        overflow: Overflow | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or _type_of(status)
        self.param = param
        self.code = code
        self.headers = headers or {}
        if status == 429:
            self.headers.setdefault("Retry-After", "1")  # clients wait for longer without it
        self.overflow = overflow

    def body(self) -> dict[str, Any]:
        """Return the error object in OpenAI's form.

        LangChain looks for an overflow's code in the message.
        """
        message = self.message
        if self.code == OVERFLOW and OVERFLOW not in message:
            message = f"{message} ({OVERFLOW})"
        error = {
            "message": message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def body_on(self, path: str) -> dict[str, Any]:
        """Return the error object in the form of the API to which a path belongs."""
        if speaks_anthropic(path):
            return anthropic_error(self.status, self.message, self.code, self.overflow)
        return self.body()

    def response(self, path: str) -> JsonAnswer:
        """Return the whole HTTP response to a request of a path."""
        return JsonAnswer(self.body_on(path), self.status, self.headers)


def overflow_in(message: str) -> Overflow | None:
    """Return the numbers of a message of vLLM's about an overflow, if it has counted all tokens."""
    tokens, window = _COUNTED.search(message), _WINDOW.search(message)
    if tokens is None or window is None:
        return None
    return int(tokens[1]), int(window[1])


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return an error of status 400: the request is invalid."""
    return ApiError(400, message, param=param, code=code)


def sentence(error: Exception) -> str:
    """Return the message of one of our own errors as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def from_validation(error: ValidationError) -> ApiError:
    """Return the error of status 400 that says what is wrong with a body's first wrong field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(step) for step in first["loc"])
    sentence = without_classes(first["msg"])
    return invalid(f"{field}: {sentence}." if field else f"The body: {sentence}.", field or None)


def from_exception(error: Exception) -> ApiError:
    """Return the error that the client gets for `error`.

    The client learns no details of an unexpected error; the log holds them.
    """
    match error:
        case ApiError():
            return error
        case ContextOverflow(tokens=int(tokens), window=int(window)):
            counts = (tokens, window)
            return ApiError(400, str(error), "messages", code=OVERFLOW, overflow=counts)
        case ContextOverflow():
            return invalid(str(error), "messages", OVERFLOW)
        case LimitReached() | InvalidOutput():
            return _from_run(error)
        case MediaRefused():
            return invalid(str(error), error.param)
        case UsageError():
            return _from_usage(error)
        case EngineFailed() | RequestFailed():
            return _from_engine(error)
        case HTTPException():
            return _from_http(error)
        case CaesuraError():
            log.error("request failed: %s", error)
    log.error("unexpected error", exc_info=error)
    return ApiError(500, "The server had an internal error; see its log for the details.")


def _from_run(error: LimitReached | InvalidOutput) -> ApiError:
    """Translate the end of a run without an answer.

    Clients retry a 408, a 429 and every 5xx on their own. A retried run would run the same tools
    again.
    """
    if isinstance(error, LimitReached):
        return ApiError(422, str(error), type="limit_reached", code=error.limit)
    return ApiError(422, str(error), type="invalid_output", code="invalid_output")


def _from_usage(error: UsageError) -> ApiError:
    """Translate a mistake of the caller, which may quote what a library has said of it."""
    said = str(error)
    return ApiError(400, *plain(said)) if INSIDES.search(said) else invalid(said)


def _from_engine(error: EngineFailed | RequestFailed) -> ApiError:
    """Translate an error of the engine, whose details only the log holds."""
    match error:
        case RepeatedDeaths():
            log.error("a request was given up: %s", error)
            # Not a 5xx either: a client that sends it again may kill further engines.
            return ApiError(422, sentence(error), type="server_error", code="repeated_deaths")
        case RequestAborted():
            log.error("a request was aborted: %s", error)
            return ApiError(503, sentence(error), code="request_aborted")
        case RequestFailed():
            log.error("the engine failed at a request: %s", error)
            message = "The engine failed at this request, and lives: send it again."
            return ApiError(500, message, code="request_failed")
    log.error("the engine failed: %s", error)
    return ApiError(503, "The engine has failed: restart it.", code="engine_failed")


def _type_of(status: int) -> str:
    if status >= 500:
        return "server_error"
    return {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error"
    )


def _from_http(error: HTTPException) -> ApiError:
    """Translate the router's own error: a method that a route does not have."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"This method is not allowed here; allowed: {allowed}."
        return ApiError(405, message, code="method_not_allowed", headers={"Allow": allowed})
    return ApiError(error.status_code, error.detail)
