"""The HTTP client of all tools, with limits on time and size and on private addresses."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import (
    AddrInfoType,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from caesura.distribution import __version__
from caesura.tools.context import trace_headers
from caesura.tools.net.address import is_public
from caesura.tools.net.body import parse_json, read_body
from caesura.tools.net.errors import HttpRefused, HttpUnavailable
from caesura.tools.net.headers import media_type_of, retry_after
from caesura.tools.net.url import checked_url

USER_AGENT = f"caesura/{__version__}"
MAX_REDIRECTS = 5
DEFAULT_MAX_BYTES = 8 * 2**20
DEFAULT_TIMEOUT_SECONDS = 20.0
_REDIRECTS = {301, 302, 303, 307, 308}
_LATER = {408, 425, 429, 500, 502, 503, 504}
JSON_TYPES = ("application/json", "text/json", "+json")


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of an answer and its media type."""

    data: bytes
    media_type: str
    """In lower case and without parameters: `image/png`."""


class HttpClient:
    """Requests JSON and files from servers.

    allow_private: permits addresses that are not public; the operator decides this.
    timeout_seconds: limit for a whole request, redirects included. max_bytes: limit for an
    unpacked answer. Proxies from the environment are not used. The client belongs to the event
    loop that first uses it, until that loop is closed.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        user_agent: str = USER_AGENT,
        connections_per_host: int = 4,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self._allow_private = allow_private
        self._user_agent = user_agent
        self._connections_per_host = connections_per_host
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop

    async def get_json(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON value at a URL.

        params: added to the URL's query. headers: sent to the URL's own origin only, so that a
        redirect never carries a key elsewhere. Raises HttpRefused and HttpUnavailable.
        """
        host = _checked(url).host
        reply = await self.get_bytes(url, params=params, headers=headers, accept=JSON_TYPES)
        return await parse_json(reply.data, host)

    async def post_json(
        self, url: str, body: Any, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Return the JSON answer to a JSON body; redirects are refused. Raises as `get_json`."""
        host = _checked(url).host
        reply = await self.post_bytes(url, body, headers=headers, accept=JSON_TYPES)
        return await parse_json(reply.data, host)

    async def get_bytes(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: tuple[str, ...] = (),
    ) -> Reply:
        """Return the file at a URL.

        accept: the accepted media types, such as "image/png", "image/*" or "+json"; empty: any.
        Raises as `get_json`.
        """
        address = _checked(url)
        if params:
            address = address.extend_query(params)
        async with self._in_time(address):
            for _ in range(MAX_REDIRECTS + 1):
                async with self._answer("GET", address, headers or {}, accept) as answer:
                    target = _target(answer)
                    if target is None:
                        return await self._reply(answer, accept)
                if target.origin() != address.origin():
                    headers = None
                address = target
        raise HttpRefused(f"{address.host} redirected more than {MAX_REDIRECTS} times")

    async def post_bytes(
        self,
        url: str,
        body: Any,
        *,
        headers: Mapping[str, str] | None = None,
        accept: tuple[str, ...] = (),
    ) -> Reply:
        """Return the file that answers a JSON body; redirects are refused. Raises as `get_json`."""
        address = _checked(url)
        async with (
            self._in_time(address),
            self._answer("POST", address, headers or {}, accept, body) as answer,
        ):
            if _target(answer) is not None:
                raise HttpRefused(f"{address.host} redirects a POST; configure the new address")
            return await self._reply(answer, accept)

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _in_time(self, address: URL) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except TimeoutError:
            seconds = f"{self._timeout_seconds:g}"
            message = f"{address.host} did not answer within {seconds} seconds"
            raise HttpUnavailable(message) from None

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        address: URL,
        headers: Mapping[str, str],
        accept: tuple[str, ...],
        body: Any = None,
    ) -> AsyncIterator[ClientResponse]:
        """Yield the answer to one request, without following redirects."""
        said = {"Accept": _accept_header(accept), **trace_headers(), **headers}
        try:
            async with (await self._opened()).request(
                method, address, headers=said, json=body, allow_redirects=False
            ) as answer:
                yield answer
        except UnicodeError:  # from the resolver: an empty or overlong label
            raise HttpRefused("the URL's host name is not valid") from None
        except ClientSSLError:
            raise HttpRefused(f"the TLS connection to {address.host} failed") from None
        except ClientConnectorError as error:
            if error.errno == errno.EACCES:
                raise HttpRefused(f"{address.host} has no public address") from None
            raise HttpUnavailable(f"no connection to {address.host}") from None
        except ClientError as error:
            name = type(error).__name__
            raise HttpUnavailable(f"{address.host} closed the connection early ({name})") from None

    async def _reply(self, answer: ClientResponse, accept: tuple[str, ...]) -> Reply:
        """Return the body if the answer succeeded and has an accepted media type."""
        host, status = answer.url.host, answer.status
        if status in _LATER:
            raise HttpUnavailable(
                f"{host} answered {status} {answer.reason or ''}".rstrip(),
                status=status,
                retry_after=retry_after(answer.headers.get("Retry-After")),
            )
        if not 200 <= status < 300:
            raise HttpRefused(f"{host} answered {status} {answer.reason or ''}", status=status)
        media_type = media_type_of(answer.headers.get("Content-Type"), accept)
        if media_type is None:
            raise HttpRefused(f"{host} did not answer with {_accept_header(accept)}")
        return Reply(await read_body(answer, self._max_bytes), media_type)

    async def _opened(self) -> ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is not None and self._loop is not loop and self._loop.is_closed():
            await self.aclose()
        if self._session is None:
            self._loop = loop
            self._session = ClientSession(
                connector=TCPConnector(
                    limit_per_host=self._connections_per_host,
                    socket_factory=None if self._allow_private else _public_socket,
                ),
                auto_decompress=False,  # body.py unpacks it, within limits
                cookie_jar=DummyCookieJar(),
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
                timeout=ClientTimeout(total=None),  # `_in_time` limits the whole request
            )
        return self._session


def _public_socket(address: AddrInfoType) -> socket.socket:
    """Return the socket for an address to connect to, if the address is public."""
    family, kind, protocol, _, place = address
    if not is_public(str(place[0])):
        raise OSError(errno.EACCES, "not a public address")
    return socket.socket(family=family, type=kind, proto=protocol)


def _checked(url: str) -> URL:
    try:
        return checked_url(url)
    except ValueError as error:
        raise HttpRefused(f"{error}") from None


def _target(answer: ClientResponse) -> URL | None:
    """Return the checked target of a redirect; None for other answers."""
    place = answer.headers.get("Location")
    if answer.status not in _REDIRECTS or place is None:
        return None
    try:
        return checked_url(str(answer.url.join(URL(place))))
    except ValueError as error:
        raise HttpRefused(f"{answer.url.host} redirects to a bad address: {error}") from None


def _accept_header(accept: tuple[str, ...]) -> str:
    return ", ".join(each for each in accept if not each.startswith("+")) or "*/*"
