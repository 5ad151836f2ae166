"""The HTTP side of a remote engine: requests, streams of events, and what their failures mean."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any

import aiohttp

from caesura.runtime.errors import (
    CaesuraError,
    ContextOverflow,
    EngineFailed,
    RequestFailed,
    UsageError,
)
from caesura.tools.loops import on_loop

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 600.0
"""How long a server may say nothing before its connection counts as lost.

`caesura serve` says at least a comment every 15 seconds. Other servers say nothing while a request
waits in their queue.
"""
BUSY = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed later."""
FIRST_WAIT, MOST_WAIT = 0.25, 10.0
"""Seconds between two tries: doubled each time, up to the most."""
SHOWN = 300
"""Characters of an answer that an error shows."""
OVERFLOW = ("context_length_exceeded", "maximum context length", "context window", "context size")
"""How servers say that a conversation is too long."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is, and who asks.

    `url` is that of its OpenAI-style interface, such as `http://host:8000/v1`. A request is tried
    again for `patience` seconds where the server cannot be reached or is overloaded.
    """

    url: str
    api_key: str | None = None
    patience: float = 60.0


class Broken(Exception):
    """The connection was lost before the stream was complete."""


class Refused(Exception):
    """A server refused a request with an error in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class Connection:
    """The requests of one conversation to a server, one at a time, on any event loop. Close it."""

    def __init__(self, server: Server, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._headers = dict(headers or {})
        if server.api_key:
            self._headers["Authorization"] = f"Bearer {server.api_key}"
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the connections were opened."""

    async def ask(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a server's answer as JSON. Raises `Refused`, and `EngineFailed`."""
        answer = await self._answered(method, url, body)
        async with answer:
            try:
                found = await answer.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise EngineFailed(f"{self._server.url} answers no JSON: {_told(error)}") from error
        return found if isinstance(found, dict) else {}

    async def events(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a stream up to its end or to `[DONE]`.

        Raises `Refused`, `Broken`, and `EngineFailed` for a server that cannot be reached.
        """
        answer = await self._answered(method, url, body)
        async with answer, aclosing(_data(answer)) as lines:
            async for line in lines:
                if line == "[DONE]":
                    return
                event = _parsed(line, self._server.url)
                if isinstance(event, dict):
                    yield event

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        http, self._http = self._http, None
        if http is None or self._loop is None:
            return
        # On their own loop, or here once that has ended.
        loop = self._loop if self._loop.is_running() else asyncio.get_running_loop()
        await on_loop(loop, http.close)

    async def _answered(
        self, method: str, url: str, body: Mapping[str, Any] | None
    ) -> aiohttp.ClientResponse:
        """Return an answer with a good status; try again while the server is away or busy."""
        until, wait = monotonic() + self._server.patience, FIRST_WAIT
        while True:
            try:
                answer = await self._sent(method, url, body)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                last, asked_wait = f"cannot be reached: {_told(error)}", 0.0
            except (aiohttp.InvalidURL, ValueError) as error:
                raise UsageError(f"{self._server.url!r} is no address: {error}") from error
            else:
                if answer.status < 400:
                    return answer
                refused = await _refused(answer)
                if answer.status not in BUSY:
                    raise refused
                last, asked_wait = f"is not ready: {refused.message}", _retry_after(answer)
            wait_now = max(min(wait, MOST_WAIT), asked_wait)
            if monotonic() + wait_now > until:
                raise EngineFailed(f"{self._server.url} {last}")
            await asyncio.sleep(wait_now)
            wait *= 2

    async def _sent(
        self, method: str, url: str, body: Mapping[str, Any] | None
    ) -> aiohttp.ClientResponse:
        if self._loop is not (here := asyncio.get_running_loop()):
            await self.close()
            self._loop = here
        if self._http is None:
            time = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
            )
            self._http = aiohttp.ClientSession(headers=self._headers, timeout=time)
        return await self._http.request(method, url, json=body)


def error_of(refused: Refused, server: Server) -> CaesuraError:
    """Return what a refusal means to the caller of an engine."""
    message = refused.message
    if refused.code in OVERFLOW or any(said in message for said in OVERFLOW[1:]):
        return ContextOverflow(message)
    if refused.status in (401, 403):
        given = "its api_key was refused" if server.api_key else "it wants an api_key"
        return UsageError(f"{server.url}: {given}: {message}")
    if refused.status == 404:
        return UsageError(f"{server.url} does not know what was asked for: {message}")
    if 400 <= refused.status < 500:
        return UsageError(f"{server.url} refused the request: {message}")
    return RequestFailed(f"{server.url} failed: {message}")


def failure_of(error: object) -> Refused:
    """Return the refusal in an event of a stream that holds an error."""
    told = error if isinstance(error, Mapping) else {"message": str(error)}
    message = str(told.get("message") or json.dumps(told))[:SHOWN]
    status = told.get("status") or told.get("code")
    code = str(told.get("code") or told.get("type") or "")
    return Refused(status if isinstance(status, int) else 500, message, code)


async def _refused(answer: aiohttp.ClientResponse) -> Refused:
    async with answer:
        try:
            text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            text = ""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, Mapping):
        found = failure_of(error)
        return Refused(answer.status, found.message, found.code)
    told = error if isinstance(error, str) else text.strip()
    return Refused(answer.status, (told or answer.reason or "no reason")[:SHOWN], "")


async def _data(answer: aiohttp.ClientResponse) -> AsyncGenerator[str, None]:
    """Yield what the events of a stream hold. Raises `Broken`."""
    rest, data = b"", list[str]()
    try:
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                text = line.rstrip(b"\r").decode(errors="replace")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
                elif not text and data:
                    yield "\n".join(data)
                    data.clear()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Broken(_told(error)) from error
    if data:
        yield "\n".join(data)


def _parsed(line: str, url: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise EngineFailed(f"{url} sent no JSON: {line[:SHOWN]!r}") from error


def _retry_after(answer: aiohttp.ClientResponse) -> float:
    told = answer.headers.get("Retry-After", "")
    return float(told) if told.isdecimal() and len(told) < 4 else 0.0


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
