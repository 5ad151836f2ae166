"""Who may use a server: its keys, or the host names and pages of a server without a key."""

from collections.abc import Collection, Iterable, Mapping

from starlette.requests import HTTPConnection

from caesura.runtime.server.http.access import Check, access_check, check_role, shown_key
from caesura.runtime.server.keys.key import Key, Reach, keys_of, tenant_of
from caesura.runtime.server.keys.quota import Quotas
from caesura.runtime.server.keys.rules import Role, asked_for, least_role

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
        self.check: Check = access_check(keys, allowed_hosts, allowed_origins)
        self.names = {key.tenant: key.who for key in keys or ()}
        """The names of keys for logs, by tenant."""
        self.quotas = Quotas(keys or ())
        self.is_apart = len(keys or ()) > 1 and not shared_prefix_cache
        """Whether no key finds another one's prompts in the prefix cache."""
        self._keys = None if keys is None else {key.tenant: key for key in keys}

    def key_of(self, headers: Mapping[str, str]) -> Key | None:
        """Return the key of a request, or None for a request without a key of this server."""
        return (self._keys or {}).get(tenant_of(shown_key(headers)))

    def check_route(self, request: HTTPConnection) -> None:
        """Raise `ApiError` 403 if the request has a key of this server whose role is too low."""
        self.check_role(request, least_role(request.scope), asked_for(request.scope))

    def check_role(self, request: HTTPConnection, least: Role, what: str) -> None:
        """Raise `ApiError` 403 if the request has a key of this server, of a role below `least`.

        `what` is what it asks for.
        """
        key = self.key_of(request.headers)
        if key is not None:
            check_role(key, least, what)

    def reach(self, headers: Mapping[str, str], least: Role = Role.ADMIN) -> Reach:
        """Return the tenant whose records a request may use, or None if it may use everybody's.

        A key with the role `least` or a higher one may use everybody's, and so may every request
        to a server without keys.
        """
        if self._keys is None:
            return None
        key = self.key_of(headers)
        has = Role.CLIENT if key is None or key.role is None else key.role
        return None if has >= least else tenant_of(shown_key(headers)) or _NOBODY

    def signature(self, headers: Mapping[str, str], claimed: str) -> str:
        """Return the name under which a request decides for a person.

        It is the key's name. Without a name, an administrator and a server without keys believe
        the name that the request claims, and others sign with the begin of their key's digest.
        """
        key = self.key_of(headers)
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
