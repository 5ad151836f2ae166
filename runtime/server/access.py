"""Access checks: the API key, the host names of the server, and the type of a request's body.

A server without a key answers every request that reaches it. A web page in a user's browser can
reach every server that the user's machine can reach. Three checks refuse requests of such pages.
`Host` stops DNS rebinding, where a page points its own host name to this server.
`Origin` stops requests that a page sends to a server of another origin.
The type of a body stops requests that a browser sends without a preflight request.
"""

import hmac
import ipaddress
import string
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from caesura.runtime.errors import UsageError
from caesura.runtime.server.errors import ApiError
from caesura.runtime.server.ui import OPEN

HEALTH = "/health"
WITHOUT_KEY = OPEN | {HEALTH}
"""The routes that hold no data and need no key."""
LOOPBACK_NAME = "localhost"
JSON = "application/json"
_NAME_CHARACTERS = frozenset(string.ascii_lowercase + string.digits + "-._")
_MAX_SHOWN_CHARACTERS = 100


def access_checks(api_key: str | None, allowed_hosts: Iterable[str]) -> list[Middleware]:
    """Return the middlewares that check access, in the order in which they run.

    Raises `UsageError` for an empty key and for an allowed host that is not a valid host name.
    """
    if api_key is None:
        return [own_names(allowed_hosts), json_only]
    if not api_key.strip():
        raise UsageError(f"api_key is empty, got {api_key!r}: omit it to serve without a key")
    return [authentication(api_key), json_only]


def authentication(api_key: str) -> Middleware:
    """Return a middleware that requires the key, except on routes that hold no data."""
    expected = api_key.encode()

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        given = shown.strip().encode("utf-8", "surrogateescape")
        # The comparison takes constant time, so its duration reveals no prefix of the key.
        known = scheme.lower() == "bearer" and hmac.compare_digest(given, expected)
        if not known and request.path not in WITHOUT_KEY:
            raise ApiError(
                401,
                "The API key is missing or wrong: send it as a bearer token.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    return authenticate


def own_names(allowed_hosts: Iterable[str]) -> Middleware:
    """Return a middleware that refuses, with 403, requests that a foreign web page may have sent.

    `Host` may be `localhost`, one of `allowed_hosts` (names without a port) or an IP address.
    DNS rebinding cannot forge an IP address. An `Origin` must be the address in `Host`, or have
    one of the allowed names. `/health` is answered under every name.

    Raises `UsageError` for an allowed host that is not a valid host name.
    """
    allowed = frozenset(map(_checked, allowed_hosts))

    @web.middleware
    async def refuse_foreign(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != HEALTH:
            for host in request.headers.getall("Host", ()):
                _check_host(host, allowed)
            for origin in request.headers.getall("Origin", ()):
                _check_origin(origin, request.headers.get("Host", ""), allowed)
        return await handler(request)

    return refuse_foreign


@web.middleware
async def json_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse, with 415, a POST body whose type is not JSON.

    Browsers send bodies of some other types across origins without a preflight request.
    """
    routed = request.match_info.http_exception is None
    if routed and request.method == "POST" and request.content_type != JSON:
        said = request.headers.get("Content-Type")
        raise ApiError(
            415,
            f"The body's Content-Type is {_shown(said) if said else 'missing'}: send {JSON}.",
            code="unsupported_media_type",
        )
    return await handler(request)


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on `host` is reachable only from its own machine."""
    address = _address(host)
    return host.lower() == LOOPBACK_NAME if address is None else address.is_loopback


def needs_mention(host: str) -> bool:
    """Return whether requests to `host` are refused unless the allowed hosts include it."""
    return host.lower() not in ("", LOOPBACK_NAME) and _address(host) is None


def _check_host(host: str, allowed: frozenset[str]) -> None:
    name = _name(host)
    if name != LOOPBACK_NAME and name not in allowed and _address(name) is None:
        raise ApiError(
            403,
            f"This server does not answer under the name {_shown(name)}: start it with "
            "--allowed-host and that name, or with an API key.",
            code="host_not_allowed",
        )


def _check_origin(origin: str, host: str, allowed: frozenset[str]) -> None:
    try:
        parts = urlsplit(origin)
        same = parts.netloc.lower() == host.lower() != ""
        name = parts.hostname or ""
    except ValueError:
        same, name = False, ""
    if not same and name.removesuffix(".") not in allowed:
        raise ApiError(
            403,
            f"This server takes no requests from pages of {_shown(origin)}: start it with "
            "--allowed-host and the name in that address, or with an API key.",
            code="origin_not_allowed",
        )


def _checked(host: str) -> str:
    name = _name(host)
    if _address(host.strip("[]")) is not None:
        return host.strip("[]").lower()
    if not name or not set(name) <= _NAME_CHARACTERS or ":" in host:
        raise UsageError(
            f"allowed host {host!r} is not a host name: give a name such as llm.example.com, "
            "without a scheme, a port or a wildcard"
        )
    return name


def _name(authority: str) -> str:
    """Return the host of `host:port`, in lower case and without a final dot."""
    text = authority.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN_CHARACTERS])
