"""HTTP for tools, with limits on time and size and without access to private addresses.

A URL may come from a configuration, a redirect or a server's answer. Connections go to public
addresses only, unless the operator allows others. The check uses the address that is connected to
and not the host's name, which may resolve to another address later. Bodies are limited in packed
and unpacked size and in the depth of JSON. Errors name only the host: the rest of a URL may hold
secrets.
"""

import asyncio
import errno
import json
import math
import socket
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, NoReturn
from urllib.parse import urlsplit

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
from caesura.tools.errors import Permanent, ToolError, Unavailable
from caesura.tools.loops import on_loop

# IANA's registries of special-purpose addresses; Python's `is_global` knows only some of them.
_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20"))
# Addresses that lead to the IPv4 address in their last 32 bits.
_TRANSLATED_V6 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether the text is a public IP address.

    An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64) counts as that one.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is None:
            return address in _UNICAST_V6 and not any(address in net for net in _SPECIAL_V6)
        address = inner
    return not any(address in network for network in _SPECIAL_V4)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address carries, if any."""
    if address in _TRANSLATED_V6:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class HttpError(ToolError):
    """A request failed. The message is one line for the model."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status = status
        """The status code of the answer, if there was one."""


class HttpRefused(HttpError, Permanent):
    """A retry will not help: a refused address, a wrong answer, an answer that is too long."""


class HttpUnavailable(HttpError, Unavailable):
    """A later retry may help: no connection, no answer in time, a busy server."""


MAX_DEPTH = 64
"""The deepest nesting of arrays and objects in a JSON answer."""
_PIECE_BYTES = 65_536
_THREAD_FROM_BYTES = 65_536


async def read_body(answer: ClientResponse, max_bytes: int) -> bytes:
    """Return the whole body, unpacked if it is gzip.

    Raises HttpRefused once it is longer than `max_bytes`, packed or unpacked.
    """
    host = answer.url.host
    told = answer.content_length
    if told is not None and told > max_bytes:
        raise _too_long(host, max_bytes)
    body = bytearray()
    async for piece in _unpacked(answer):
        body += piece
        if len(body) > max_bytes:
            raise _too_long(host, max_bytes)
    return bytes(body)


async def parse_json(data: bytes, host: str | None) -> Any:
    """Return the JSON value of a body, parsed in a thread where it is long.

    Raises HttpRefused for invalid JSON (NaN is invalid), and beyond MAX_DEPTH.
    """
    try:
        if len(data) < _THREAD_FROM_BYTES:
            return load_json(data)
        return await asyncio.to_thread(load_json, data)
    except ValueError as error:
        raise HttpRefused(f"{host} answered with invalid JSON: {error}") from None


def load_json(data: bytes | str) -> Any:
    """Return the value of untrusted JSON; raises ValueError, also beyond MAX_DEPTH."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return value
    raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


async def _unpacked(answer: ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body's unpacked pieces, each of bounded size."""
    packing = answer.headers.get("Content-Encoding", "").strip().lower()
    if packing in ("", "identity"):
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            yield piece
        return
    if packing not in ("gzip", "x-gzip"):
        raise HttpRefused(f"{answer.url.host} used a compression that was not requested")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            rest = piece
            full = True
            while (rest or full) and not unpacker.eof:
                unpacked = unpacker.decompress(rest, _PIECE_BYTES)
                yield unpacked
                await asyncio.sleep(0)  # unpacking a long answer must not block the event loop
                rest, full = unpacker.unconsumed_tail, len(unpacked) == _PIECE_BYTES
    except zlib.error:
        raise HttpRefused(f"{answer.url.host} sent a damaged answer") from None
    if not unpacker.eof:
        raise HttpRefused(f"{answer.url.host} sent only a part of its answer")


def _too_long(host: str | None, max_bytes: int) -> HttpRefused:
    return HttpRefused(f"{host} sent a longer answer than the {max_bytes} bytes allowed")


MAX_RETRY_AFTER_SECONDS = 86_400.0


def media_type_of(content_type: str | None, accept: tuple[str, ...]) -> str | None:
    """Return the media type, in lower case without parameters, or None if it is not accepted.

    accept: "image/png", "image/*" or "+json"; empty accepts any.
    """
    media_type = (content_type or "application/octet-stream").partition(";")[0].strip().lower()
    if not accept or any(_fits(media_type, each) for each in accept):
        return media_type
    return None


def retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date, at most a day.

    A date in the past gives 0; a header without either gives None.
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _fits(media_type: str, wanted: str) -> bool:
    if wanted.startswith("+"):
        return media_type.endswith(wanted)
    if wanted.endswith("/*"):
        return media_type.startswith(wanted[:-1])
    return media_type == wanted


MAX_URL_CHARACTERS = 8_000


def checked_url(text: str) -> URL:
    """Return the URL; raises ValueError unless it is http or https with a host and no user name.

    A user name before the host is refused because it can disguise the real host. Keys belong in
    headers.
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise ValueError(
            f"the URL has {len(text)} characters; at most {MAX_URL_CHARACTERS} are allowed"
        )
    if any(character <= " " or character in "\\\x7f" for character in text):
        raise ValueError("the URL contains a space, a backslash or a control character")
    try:
        url, host = URL(text), urlsplit(text).hostname
        port = url.port
    except (ValueError, UnicodeError):
        raise ValueError("the URL cannot be parsed") from None
    if url.scheme not in ("http", "https"):
        raise ValueError("the URL must begin with http:// or https://")
    if not host or not url.host or port == 0:
        raise ValueError("the URL has no host")
    if url.user is not None or url.password is not None:
        raise ValueError("the URL must not contain a user name or a password; use headers")
    return url


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


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to a server: a GET or, with a body, a POST."""

    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    """Added to the URL's query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent to the URL's own origin only, so that a redirect never carries a key elsewhere."""
    body: Any = None
    """The JSON value to send, unless it is None."""
    accept: tuple[str, ...] = ()
    """The accepted media types, such as "image/png", "image/*" or "+json"; empty: any."""
    allows: Callable[[str], bool] | None = None
    """Decides to which addresses a redirect may lead; None: to any."""


class HttpClient:
    """Requests JSON and files from servers.

    allow_private: permits addresses that are not public; the operator decides this.
    timeout_seconds: limit for a whole request, redirects included. max_bytes: limit for an
    unpacked answer. Proxies from the environment are not used. All event loops and threads may use
    the client; each loop has connections of its own.
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
        self._sessions: dict[asyncio.AbstractEventLoop, ClientSession] = {}

    async def json(self, request: Outgoing) -> Any:
        """Return the JSON value that answers a request. Raises HttpRefused and HttpUnavailable."""
        reply = await self.file(replace(request, accept=JSON_TYPES))
        return await parse_json(reply.data, _checked(request.url).host)

    async def file(self, request: Outgoing) -> Reply:
        """Return the file that answers a request; redirects of a body are refused.

        Raises as `json`.
        """
        address = _checked(request.url).extend_query(request.params)
        async with self._in_time(address):
            for _ in range(MAX_REDIRECTS + 1):
                async with self._answer(address, request) as answer:
                    target = _target(answer)
                    if target is None:
                        return await self._reply(answer, request.accept)
                if request.body is not None:
                    raise HttpRefused(f"{address.host} redirects a POST; configure the new address")
                if request.allows is not None and not request.allows(str(target)):
                    raise HttpRefused(f"{address.host} redirects to a domain that is not allowed")
                if target.origin() != address.origin():
                    request = replace(request, headers={})
                address = target
        raise HttpRefused(f"{address.host} redirected more than {MAX_REDIRECTS} times")

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        await self._close(list(self._sessions))

    async def _close(self, loops: Iterable[asyncio.AbstractEventLoop]) -> None:
        for loop in loops:
            session = self._sessions.pop(loop, None)
            if session is None:
                continue
            # On its own loop, or here once that has ended.
            await on_loop(loop if loop.is_running() else asyncio.get_running_loop(), session.close)

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
    async def _answer(self, address: URL, request: Outgoing) -> AsyncIterator[ClientResponse]:
        """Yield the answer to one request, without following redirects."""
        said = {"Accept": _accept_header(request.accept), **trace_headers(), **request.headers}
        method = "GET" if request.body is None else "POST"
        try:
            async with (await self._opened()).request(
                method, address, headers=said, json=request.body, allow_redirects=False
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
        await self._close([each for each in list(self._sessions) if each.is_closed()])
        if loop not in self._sessions:
            self._sessions[loop] = ClientSession(
                connector=TCPConnector(
                    limit_per_host=self._connections_per_host,
                    socket_factory=None if self._allow_private else _public_socket,
                ),
                auto_decompress=False,  # body.py unpacks it, within limits
                cookie_jar=DummyCookieJar(),
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
                timeout=ClientTimeout(total=None),  # `_in_time` limits the whole request
            )
        return self._sessions[loop]


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
