"""Answers tell a key what is left of its limits."""

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.server.keys.quota import Quotas


class LimitsTold:
    """Middleware that adds the headers `x-ratelimit-*` to the answers of keys with limits."""

    def __init__(self, app: ASGIApp, quotas: Quotas) -> None:
        self._app = app
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = HTTPConnection(scope).headers

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers.update(self._quotas.told(given))
                message = {**message, "headers": headers.raw}
            await send(message)

        await self._app(scope, receive, told)
