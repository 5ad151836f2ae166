"""Counting of requests, under the paths of their routes."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.metrics import Metrics

CLIENT_LEFT = 499
"""The status under which a request counts whose client left early. It is never sent."""
_OUTCOME = "caesura.outcome"


def count_as(scope: Scope, status: int) -> None:
    """Count a request under `status`, since it failed after another status was sent."""
    scope[_OUTCOME] = status


class Counted:
    """Middleware that counts every request and its duration."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

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
                route = _route(scope)
                outcome = str(scope.get(_OUTCOME, status))
                self._metrics.requests.labels(route, outcome).inc()
                self._metrics.duration.labels(route).observe(time.monotonic() - started)

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


def _route(scope: Scope) -> str:
    """Return the path of the request's route: a label per path would let clients add any number."""
    return getattr(scope.get("route"), "path_format", None) or "unknown"
