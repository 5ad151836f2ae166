"""Counting and recording of requests, under the paths of their routes."""

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.recording.recorder import HttpLog

CLIENT_LEFT = 499
"""The status under which a request counts whose client left early. It is never sent."""
API = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
"""Paths by which a request is recorded that was refused before it had a route."""
UNRECORDED = (
    *("/health", "/ready", "/metrics", "/ui", "/artifacts"),
    *("/v1/trace", "/v1/pending", "/v1/what-if"),
)
"""What watches the server, and what people and browsers fetch. `/favicon.ico` is one of those."""
_OUTCOME = "caesura.outcome"
_CODE = "caesura.error_code"
_ANSWER = "caesura.answer"


def count_as(scope: Scope, status: int, code: str | None = None) -> None:
    """Count a request under `status`, since it failed after another status was sent."""
    scope[_OUTCOME] = status
    note_code(scope, code)


def note_code(scope: Scope, code: str | None) -> None:
    """Note the code of the error that answers a request, for its record."""
    scope[_CODE] = code or ""


def note_answer(scope: Scope, answer: str) -> None:
    """Note the id of a request's answer, for its record."""
    scope[_ANSWER] = answer


def noted_answer(scope: Scope) -> str:
    """Return the id of a request's answer, or an empty text."""
    return str(scope.get(_ANSWER, ""))


Observe = Callable[[str, int, float], None]
"""Takes the route, the status and the duration of each request, in seconds."""


class Counted:
    """Middleware that counts every request and its duration, and records those that matter."""

    def __init__(self, app: ASGIApp, observe: Observe, log: HttpLog | None = None) -> None:
        """Create it; `log` takes requests to the API and refusals, None records nothing."""
        self._app = app
        self._observe = observe
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it just before the end of its answer is sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        begun = CLIENT_LEFT
        counted = False

        def count(status: int) -> None:
            nonlocal counted
            if not counted:
                counted = True
                self._count(scope, scope.get(_OUTCOME, status), time.monotonic() - started)

        async def observed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = message["status"]
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                count(begun)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            count(CLIENT_LEFT)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._observe(route, status, seconds)
        if self._log is not None and _matters(scope, status):
            if route == "unknown" and scope["path"] in API:
                route = scope["path"]
            self._log.add(route, status, seconds, scope.get(_CODE, ""), scope.get(_ANSWER, ""))


def _route(scope: Scope) -> str:
    """Return the path of the request's route: a label per path would let clients add any number."""
    return getattr(scope.get("route"), "path_format", None) or "unknown"


def _matters(scope: Scope, status: int) -> bool:
    """Return whether a request is recorded: one that asked for work, or that was refused.

    What only reads asks for no work, and leaving its stream is no failure.
    """
    path = scope["path"]
    watches = any(path == each or path.startswith(f"{each}/") for each in UNRECORDED)
    if watches or path == "/favicon.ico":
        return False
    return scope["method"] == "POST" or (status >= 400 and status != CLIENT_LEFT)
