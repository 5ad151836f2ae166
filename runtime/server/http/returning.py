"""The headers by which a session finds its server again, and the server's own name in answers."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.exchange import noted_answer
from caesura.scheduler.programs import SESSION

SERVER = "Caesura-Server"
"""The server that answered. A client that sends it back returns to that server."""
ANSWER = "Caesura-Answer"
"""The id of the response or conversation that an answer is about, which later requests name."""
MAX_NAME_CHARACTERS = 128
_NAME = re.compile(rf"[A-Za-z0-9._:#-]{{1,{MAX_NAME_CHARACTERS}}}")


def checked_server(name: str) -> str:
    """Return the name of a server; raise `UsageError` for one that no header can carry."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a server's name has 1 to {MAX_NAME_CHARACTERS} letters, digits or any of . _ : # -,"
            f" got {name[:200]!r}: choose another"
        )
    return name


class Named:
    """Middleware that names the server in each answer, and the session that the request named.

    So a client, or a router in front, knows what to send to come back.
    """

    def __init__(self, app: ASGIApp, server: str) -> None:
        self._app = app
        self._server = checked_server(server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers[SERVER] = self._server
                if answer := noted_answer(scope):
                    headers[ANSWER] = answer
                for name, value in scope["headers"]:
                    if name == _SESSION:
                        headers[SESSION] = value.decode("latin-1")
            await send(message)

        await self._app(scope, receive, named)


_SESSION = SESSION.lower().encode()
