"""Errors after a stream has begun: its status was sent, so the error becomes an event."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from caesura.runtime.server.http.counting import count_as
from caesura.runtime.server.http.errors import from_exception
from caesura.runtime.server.http.stream import EventStream


@asynccontextmanager
async def errors_sent(
    request: Request,
    stream: EventStream,
    send: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> AsyncGenerator[None]:
    """Send an error that ends the block as an event; raise it if the stream has not begun."""
    try:
        yield
    except Exception as error:
        await stream.hush()
        if not stream.begun:
            raise
        told = from_exception(error)
        count_as(request.scope, told.status, told.code)
        await send(told.body_on(request.url.path))
