"""Who may use a server: its keys, or the host names and pages of a server without a key.

A server without a key answers every request that reaches it. A web page in a user's browser can
reach every server that the user's machine can reach. Three checks refuse requests of such pages.
`Host` stops DNS rebinding, where a page points its own host name to this server.
`Origin` stops requests that a page sends to a server of another origin.
The type of a body (`JsonOnly`) stops requests that a browser sends without a preflight request.
"""

import hmac
import ipaddress
import string
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.http.exchange import HEALTH, READY, Check, noted_request
from caesura.runtime.server.keys.key import (
    Key,
    Reach,
    encoded,
    keys_of,
)
from caesura.runtime.server.keys.quota import Quotas
from caesura.runtime.server.keys.rules import Role, asked_for, least_role
from caesura.runtime.server.keys.sender import SENDER, Sender, found_sender, sender_of

PROBES = frozenset({HEALTH, READY})
"""What probes ask for, under any name of the server and without a key."""
LOOPBACK_NAME = "localhost"
_NAME_CHARACTERS = frozenset(string.ascii_lowercase + string.digits + "-._")
_MAX_SHOWN_CHARACTERS = 100
ApiKeys = str | Collection[str | Key] | None
_NOBODY = "nobody"
"""The reach of a request without a key, to a server with keys: no record has this tenant."""


class Door:
    """The checks of a server, the limits and roles of its keys, and what is apart between them."""

    def __init__(
        self,
        api_key: ApiKeys,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Collection[str] = (),
        shared_prefix_cache: bool = False,
    ) -> None:
        """Create it; raises `UsageError` as `access_check` does, and for an empty key."""
        keys = keys_of(api_key)
        self._check = access_check(keys, allowed_hosts, allowed_origins)
        self.names = {key.tenant: key.who for key in keys or ()}
        """The names of keys for logs, by tenant."""
        self.quotas = Quotas(keys or ())
        self.is_apart = len(keys or ()) > 1 and not shared_prefix_cache
        """Whether no key finds another one's prompts in the prefix cache."""
        self._keys = None if keys is None else {key.tenant: key for key in keys}

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """Return the sender that a request's headers show."""
        return found_sender(headers, self._keys or {})

    def check(self, request: HTTPConnection) -> None:
        """Find who sent a request, for its scope; raise `ApiError` if it may not be answered."""
        sender = self.sender(request.headers)
        request.scope[SENDER] = replace(sender, request_id=noted_request(request.scope))
        self._check(request)

    def tenant_name(self, tenant: str) -> str:
        """Return the name of a tenant for records and logs, or an empty text.

        Without a name of its own, a key goes by the begin of its digest. A server with keys names
        no other keys.
        """
        if self._keys is None:
            return f"key {tenant[:8]}" if tenant else ""
        return self.names.get(tenant, "")

    def who(self, scope: Scope) -> str:
        """Return the name of a request's key, as `tenant_name` does."""
        sender: Sender | None = scope.get(SENDER)
        return "" if sender is None else self.tenant_name(sender.tenant)

    def headers(self, scope: Scope) -> Mapping[str, str]:
        """Return the headers of an answer that tell what is left of its key's limits."""
        sender: Sender | None = scope.get(SENDER)
        return {} if sender is None else self.quotas.headers(sender)

    def check_route(self, request: HTTPConnection) -> None:
        """Raise `ApiError` 403 if the request has a key of this server whose role is too low.

        It is of a route that `check` does not guard.
        """
        sender = self.sender(request.headers)
        self.check_role(sender, least_role(request.scope), asked_for(request.scope))

    def check_role(self, sender: Sender, least: Role, what: str) -> None:
        """Raise `ApiError` 403 if the sender has a key of this server, of a role below `least`.

        `what` is what it asks for.
        """
        if sender.key is not None:
            check_role(sender.key, least, what)

    def reach(self, sender: Sender, least: Role = Role.ADMIN) -> Reach:
        """Return the tenant whose records a sender may use, or None if it may use everybody's.

        A key with the role `least` or a higher one may use everybody's, and so may every request
        to a server without keys.
        """
        if self._keys is None:
            return None
        key = sender.key
        has = Role.CLIENT if key is None or key.role is None else key.role
        return None if has >= least else sender.tenant or _NOBODY

    def signature(self, sender: Sender, claimed: str) -> str:
        """Return the name under which a sender decides for a person.

        It is the key's name. Without a name, an administrator and a server without keys believe
        the name that the request claims, and others sign with the begin of their key's digest.
        """
        key = sender.key
        if key is None or (not key.name and key.role is Role.ADMIN):
            return claimed
        return key.who


def reaches(reach: Reach, tenant: str) -> bool:
    """Return whether records of a tenant are within a reach, as `Door.reach` returns it."""
    return reach is None or reach == tenant


def check_door(
    api_key: ApiKeys, allowed_hosts: Iterable[str], allowed_origins: Collection[str]
) -> None:
    """Raise `UsageError` for wrong settings, before anything is started."""
    Door(api_key, allowed_hosts, allowed_origins)


def access_check(
    keys: Collection[Key] | None,
    allowed_hosts: Iterable[str],
    allowed_origins: Collection[str] = (),
) -> Check:
    """Return the check of a server with keys, or of one without a key for some host names.

    Pages of `allowed_origins` may use a server without a key. Raises `UsageError` for an allowed
    host that is not a valid host name, and for an origin that is none.
    """
    for origin in allowed_origins:
        _check_is_origin(origin, keys is not None)
    if keys is None:
        return _own_names(allowed_hosts, frozenset(allowed_origins))
    return _authentication(keys)


def _authentication(keys: Iterable[Key]) -> Check:
    """Return a check that requires a key whose role suffices, but for routes without data."""
    expected = [(encoded(key.secret), key) for key in keys]

    def authenticate(request: HTTPConnection) -> None:
        shown = sender_of(request).shown
        given = encoded(shown.key)
        # The comparison takes constant time, so its duration reveals no prefix of the key.
        known = [key for each, key in expected if hmac.compare_digest(given, each)]
        least = least_role(request.scope)
        if known and shown.scheme == "bearer":
            check_role(known[0], least, asked_for(request.scope))
        elif least is not Role.OPEN:
            raise ApiError(
                401,
                "The API key is missing or wrong: send it as a bearer token, or as x-api-key.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return authenticate


def check_role(key: Key, least: Role, what: str) -> None:
    """Raise `ApiError` 403 for a key whose role does not suffice for `what`."""
    has = key.role or Role.CLIENT
    if has < least:
        raise ApiError(
            403,
            f"{what} needs a key with the role {least.word}, and this key has the role {has.word}:"
            f" use another key, or write role={least.word} behind this one in the server's"
            " --api-key-file.",
            code="role_needed",
        )


def _own_names(allowed_hosts: Iterable[str], origins: frozenset[str]) -> Check:
    """Return a check that refuses, with 403, requests that a foreign web page may have sent.

    `Host` may be `localhost`, one of `allowed_hosts` (names without a port) or an IP address.
    DNS rebinding cannot forge an IP address. An `Origin` must be the address in `Host`, one of
    `origins`, or have one of the allowed names. Probes are answered under every name.
    """
    allowed = frozenset(map(_checked, allowed_hosts))

    def refuse_foreign(request: HTTPConnection) -> None:
        if request.scope["path"] not in PROBES:
            for host in request.headers.getlist("Host"):
                _check_host(host, allowed)
            for origin in set(request.headers.getlist("Origin")) - origins:
                _check_origin(origin, request.headers.get("Host", ""), allowed)

    return refuse_foreign


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
            "--allowed-origin and that address, --allowed-host and its name, or an API key.",
            code="origin_not_allowed",
        )


def _check_is_origin(origin: str, has_key: bool) -> None:
    if origin == "*":
        if not has_key:
            raise UsageError(
                "allowed origin '*' lets every web page use the tools: name the origins, or set an"
                " API key"
            )
        return
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != origin:
        raise UsageError(
            f"allowed origin {origin!r} is not an origin: give a scheme, a name and perhaps a port,"
            " such as https://app.example.com, without a path"
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
