"""Who may use a server: its keys, or the host names and pages of a server without a key."""

from collections.abc import Collection, Iterable

from caesura.runtime.server.http.access import Check, access_check
from caesura.runtime.server.keys.key import Key, keys_of
from caesura.runtime.server.keys.quota import Quotas

ApiKeys = str | Collection[str | Key] | None


class Door:
    """The checks of a server, the limits of its keys, and whether their caches are apart."""

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


def check_door(
    api_key: ApiKeys, allowed_hosts: Iterable[str], allowed_origins: Collection[str]
) -> None:
    """Raise `UsageError` for wrong settings, before anything is started."""
    Door(api_key, allowed_hosts, allowed_origins)
