"""What every request meets, whatever it asks for: a check, counting, recording, and its errors."""

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.recording.recorder import HttpLog
from caesura.runtime.server.http.access_log import Access, AccessLog
from caesura.runtime.server.http.errors import ApiError, from_exception

log = logging.getLogger(__name__)

HEALTH = "/health"
READY = "/ready"
CLIENT_LEFT = 499
"""The status under which a request counts whose client left early. It is never sent."""
API = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
"""Paths by which a request is recorded that was refused before it had a route."""
UNRECORDED = (
    *(HEALTH, READY, "/metrics", "/ui", "/artifacts"),
    *("/v1/trace", "/v1/pending", "/v1/what-if"),
)
"""What watches the server, and what people and browsers fetch. `/favicon.ico` is one of those."""
REQUEST_ID = "X-Request-Id"
"""The header by which a client names a request; the answer has it again, or one of ours."""
_REQUEST_ID = REQUEST_ID.lower().encode()
_SOUND_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_OUTCOME = "caesura.outcome"
_CODE = "caesura.error_code"
_ANSWER = "caesura.answer"
_NAMED = "caesura.request_id"


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


def noted_request(scope: Scope) -> str:
    """Return the id of a request, which its answer has in `X-Request-Id`."""
    return str(scope.get(_NAMED, ""))


def _name(scope: Scope) -> str:
    """Return the id that a request has from its client, or a new one if that is none."""
    for name, value in scope["headers"]:
        if name == _REQUEST_ID and _SOUND_ID.fullmatch(value):
            return str(value.decode())
    return f"req_{uuid.uuid4().hex}"


Check = Callable[[HTTPConnection], None]
"""Raises `ApiError` for a request that may not be answered."""
Observe = Callable[[str, int, float], None]
"""Takes the route, the status and the duration of each request, in seconds."""
Tell = Callable[[Scope], Mapping[str, str]]
"""Returns headers of the answer to a request, beside its own."""


Who = Callable[[Scope], str]
"""Returns the name of the key of a request, or an empty text."""


def _nothing(scope: Scope) -> Mapping[str, str]:
    return {}


def _nobody(scope: Scope) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What every request meets: the check before it, and who is told of it behind it."""

    check: Check
    observe: Observe
    log: HttpLog | None = None
    """Takes requests to the API, and refusals; None records nothing."""
    tell: Tell = _nothing
    who: Who = _nobody
    access: AccessLog | None = None
    """Takes every request; None writes nothing."""


class Exchanges:
    """Middleware that checks, counts and records each request, and turns exceptions into errors."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with an error object if it may not be answered or its handler fails.

        It is counted just before the end of its answer is sent.
        """
        exchange = _Exchange(scope, send, self._rules)
        try:
            self._rules.check(HTTPConnection(scope))
            await self._app(scope, receive, exchange.send)
        except Exception as error:
            told = from_exception(error)
            if exchange.begun:
                # The caller's connection is closed, since no other sign is left.
                log.error("an answer was cut short: %s", error)
            else:
                await refuse(told, scope, receive, exchange.send)
        finally:
            exchange.count(CLIENT_LEFT)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send, rules: Rules) -> None:
        self.begun = False
        """Whether some of the answer was sent."""
        self._scope = scope
        self._send = send
        self._rules = rules
        self._started = time.monotonic()
        self._status = CLIENT_LEFT
        self._is_counted = scope["type"] != "http"
        scope[_NAMED] = self._request_id = _name(scope)

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        self.begun = True
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(raw=[*message.get("headers", ())])
            headers[REQUEST_ID] = self._request_id
            headers.update(self._rules.tell(self._scope))
            message = {**message, "headers": headers.raw}
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.count(self._status)
        await self._send(message)

    def count(self, status: int) -> None:
        """Count and record the request, unless it was."""
        if self._is_counted:
            return
        self._is_counted = True
        scope, seconds = self._scope, time.monotonic() - self._started
        status, route = scope.get(_OUTCOME, status), _route(scope)
        self._rules.observe(route, status, seconds)
        tenant, answer = self._rules.who(scope), scope.get(_ANSWER, "")
        if self._rules.access is not None:
            named = (tenant, self._request_id, answer)
            self._rules.access.add(Access(scope["method"], scope["path"], status, seconds, *named))
        if self._rules.log is not None and _matters(scope, status):
            if route == "unknown" and scope["path"] in API:
                route = scope["path"]
            said = (scope.get(_CODE, ""), answer, tenant, self._request_id)
            self._rules.log.add(route, status, seconds, *said)


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with an error."""
    if scope["type"] == "http":
        note_code(scope, error.code)
        await error.response(scope["path"])(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": error.message})


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
