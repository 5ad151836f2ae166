"""Programs: sessions that belong together, such as an agent and the sub-agents that it starts.

A session may have a name, and may name a parent. Both are texts that a client chooses. Sessions
with the same parent, and the session of that name, are one program: all count from its first
arrival. A parent counts only within its tenant, so that no client can pass as a part of another's
program.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SESSION, PARENT = "Caesura-Session", "Caesura-Parent"
"""The headers with which a client names a session, and the session that started it."""
SESSION_FINAL = "Caesura-Session-Final"
"""The header with which a client says, by `true`, that a request is its session's last."""
MAX_NAME_CHARACTERS = 256
"""Names are cut there, since a client chooses them."""

KEYS = {"tenant": "caesura_tenant", "session": "caesura_session", "parent": "caesura_parent"}
"""The keys of an origin's fields in the `extra_args` of vLLM's sampling parameters."""

MAX_PROGRAMS = 4096
MAX_IDLE_SECONDS = 600.0
"""After so many seconds without a request, a program's name begins a new program."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from: its tenant, its session's id, and its parent's id.

    All may be empty. `tenant` is a digest of the client's key, never the key.
    """

    tenant: str = ""
    session: str = ""
    parent: str = ""

    def to_wire(self) -> dict[str, str]:
        """Return the fields that are not empty, by their keys in `extra_args`."""
        return {key: getattr(self, name) for name, key in KEYS.items() if getattr(self, name)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Origin":
        """Return the origin in `extra_args`; what is no text counts as missing."""
        found = {name: wire.get(key) for name, key in KEYS.items()}
        texts = {name: text for name, text in found.items() if isinstance(text, str)}
        return cls(**{name: text[:MAX_NAME_CHARACTERS] for name, text in texts.items()})


NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class _Seen:
    """When a name's program first arrived and when the name was last used, and its parent."""

    first: float
    last: float
    parent: str


class Programs:
    """The first arrivals of programs, bounded in number and in idle time."""

    def __init__(self, max_programs: int = MAX_PROGRAMS) -> None:
        self._max_programs = max_programs
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def arrival(self, origin: Origin, now: float) -> float:
        """Return when the program of a request that arrives `now` first arrived, in seconds."""
        names = [name for name in (origin.parent, origin.session) if name]
        keys = [(origin.tenant, name) for name in names]
        known = [self._seen[key] for key in keys if key in self._seen]
        alive = [seen.first for seen in known if now - seen.last <= MAX_IDLE_SECONDS]
        arrival = min([*alive[:1], now])
        for key in keys:
            before = self._seen.get(key)
            parent = before.parent if before is not None else ""
            if key[1] == origin.session:
                parent = origin.parent or parent
            self._seen[key] = _Seen(arrival, now, parent)
            self._seen.move_to_end(key)
        while len(self._seen) > self._max_programs:
            self._seen.popitem(last=False)
        return arrival

    def end(self, tenant: str, session: str) -> frozenset[str]:
        """Forget a tenant's session, and all that it has started; return their names."""
        parents = {name: seen.parent for (of, name), seen in self._seen.items() if of == tenant}
        ended: set[str] = set()
        found = {session}
        while found:
            ended |= found
            found = {name for name, parent in parents.items() if parent in found} - ended
        for name in ended:
            self._seen.pop((tenant, name), None)
        return frozenset(ended)
