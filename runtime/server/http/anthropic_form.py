"""Errors in the form of Anthropic's API: `{"type": "error", "error": {type, message}}`."""

from typing import Any

MESSAGES = "/v1/messages"
"""The route whose errors, and those of the routes below it, have this form."""
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
NO_THREADS = "thread_unsupported_request"
"""The code on which Anthropic's clients send the whole conversation with each request."""


def speaks_anthropic(path: str) -> bool:
    """Return whether the clients of a path expect Anthropic's API."""
    return path == MESSAGES or path.startswith(f"{MESSAGES}/")


def anthropic_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return the error object, for a response or for an event of a stream.

    Most of Anthropic's errors have no codes. Agents recognise an overflow of the context window
    by the words with which Anthropic's message begins.
    """
    if code == "context_length_exceeded":
        message = f"prompt is too long: {message}"
    kind = "api_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if code == NO_THREADS:
        error["details"] = {"error_code": code, "unsupported": ["thread"]}
    return {"type": "error", "error": error}
