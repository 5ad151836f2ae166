"""The one address: it reads a request, and sends it to the server where its session is."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from starlette.types import Message, Receive, Scope, Send

from caesura.runtime.front.asked import asked_in, headers_of
from caesura.runtime.front.forwarded import Forwarded, plain_scope
from caesura.runtime.server.http.returning import ANSWER, SERVER
from caesura.runtime.server.responses.ids import CONVERSATION, RESPONSE
from caesura.runtime.trajectories.kept import SESSION
from caesura.scheduler.policy.homes import Recent
from caesura.scheduler.policy.routing import Asked

LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 * 2**20
MAX_ANSWERS = 100_000
"""The answers whose server is remembered."""
NAMED_LATER = tuple(f"{prefix}_" for prefix in (RESPONSE, CONVERSATION, SESSION))
"""What the ids of answers begin with that later requests may name."""
LOST = "The server of this request has gone before it answered."
AGAIN_SECONDS = 1


class Front:
    """An ASGI application that forwards each request by a handle of Ray Serve."""

    def __init__(self, servers: Any, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        """Create it; `servers` is the handle of the deployment `Server`."""
        self._servers = servers
        self._max_body_bytes = max_body_bytes
        self._answers = Recent(MAX_ANSWERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or live with Ray Serve's replica."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "use HTTP here"})
        else:
            body = await self._body(receive)
            if body is None:
                await _refuse(send, 413, f"The body is over {self._max_body_bytes} bytes.")
            else:
                await self._forward(scope, body, send)

    async def _forward(self, scope: Scope, body: bytes, send: Send) -> None:
        begun = False
        try:
            async with aclosing(self._answer(scope, body)) as messages:
                async for message in messages:
                    begun = True
                    await send(message)
        except (RayError, RayServeException) as error:
            LOG.warning("a server was lost during a request: %s", error)
            if begun:
                raise  # the connection breaks, so that the client sees an answer without its end
            await _refuse(send, 503, LOST, "server_lost")

    async def _answer(self, scope: Scope, body: bytes) -> AsyncGenerator[Message, None]:
        asked = self._asked(scope, body)
        request = Forwarded(asked, plain_scope(scope), body)
        answer = self._servers.options(stream=True).answer.remote(request)
        try:
            async for messages in answer:
                for message in messages:
                    if message["type"] == "http.response.start":
                        self._learn(message)
                    yield message
        finally:
            answer.cancel()

    def _asked(self, scope: Scope, body: bytes) -> Asked:
        asked = asked_in(scope, body)
        server = asked.server or self._answers.get(asked.continues)
        return replace(asked, server=server)

    def _learn(self, start: Message) -> None:
        """Remember which server made the answer that later requests may name."""
        headers = headers_of(start)
        answer, server = headers.get(ANSWER), headers.get(SERVER)
        if answer and server and answer.startswith(NAMED_LATER):
            self._answers.put(answer, server)

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body of a request, or None for one that is too large."""
        pieces, size = [], 0
        while True:
            message = await receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._max_body_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(pieces)


async def _refuse(send: Send, status: int, message: str, code: str | None = None) -> None:
    told = {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
    headers = [(b"content-type", b"application/json")]
    if code is not None:
        headers.append((b"retry-after", str(AGAIN_SECONDS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
