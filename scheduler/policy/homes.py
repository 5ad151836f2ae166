"""Which server a request goes to: the one that has served its session, unless it is overloaded.

A session that nobody has served yet goes to the server that holds the beginning of its prompt, and
else to one by rendezvous hashing (Thaler and Ravishankar 1998): several routers that know nothing
of each other choose the same. No server takes more than its share of the load, as in consistent
hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018).
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from caesura.scheduler.policy.routing import Asked, Load, Prefixes, Router, rendezvous


class Recent:
    """Servers by key, of which the least recently used are forgotten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: OrderedDict[Hashable, str] = OrderedDict()

    def get(self, key: Hashable) -> str:
        """Return the server of a key, or an empty text."""
        if key in self._found:
            self._found.move_to_end(key)
        return self._found.get(key, "")

    def put(self, key: Hashable, server: str) -> None:
        """Remember the server of a key."""
        self._found[key] = server
        self._found.move_to_end(key)
        if len(self._found) > self._size:
            self._found.popitem(last=False)

    def drop(self, server: str) -> None:
        """Forget all keys of a server."""
        self._found = OrderedDict(item for item in self._found.items() if item[1] != server)


@dataclass(frozen=True)
class Bounds:
    """When a server is overloaded, and how much is remembered."""

    factor: float = 1.25
    """A server may have this many times the mean number of requests in flight..."""
    slack: int = 4
    """...and always this many. What is below both is no reason to leave a session's KV cache."""
    prefix_share: float = 0.5
    """The share of a first prompt that a server must hold to get a new session."""
    max_sessions: int = 100_000
    """Sessions that are remembered, and blocks; the least recently used are forgotten first."""
    shared: bool = False
    """Whether the servers share one store of responses. If not, what continues an earlier answer
    waits for the server that made it, however loaded that is."""

    def __post_init__(self) -> None:
        if self.factor < 1 or self.slack < 0 or self.max_sessions < 1:
            raise ValueError(
                "factor must be at least 1, slack at least 0 and max_sessions at least 1, got"
                f" {self.factor:g}, {self.slack} and {self.max_sessions}"
            )


class Homes(Router):
    """The memory of who has served which session, and the choice of a server by it."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._sessions = Recent(self._bounds.max_sessions)
        self._parts = Recent(self._bounds.max_sessions)

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the server that should be tried first."""
        return self.ranked(asked, loads)[0]

    def ranked(self, asked: Asked, loads: Sequence[Load]) -> list[int]:
        """Return the servers in the order in which they should be tried, the best first.

        `loads` holds every server that is there. Overloaded servers come last.
        """
        there = {load.name: place for place, load in enumerate(loads)}
        home = self._home(asked, there)
        if home and asked.continues and not self._bounds.shared:
            return [there[home]]
        key = asked.session or asked.continues
        if key:
            order = sorted(there, key=lambda server: rendezvous(key, server), reverse=True)
        else:
            order = sorted(there, key=lambda server: (loads[there[server]].requests, server))
        if home:
            order.remove(home)
            order.insert(0, home)
        in_flight = {load.name: load.requests for load in loads}
        bound = self._bound(in_flight.values())
        # Sorting is stable: those below the bound keep their order, and of the others the one with
        # the least load comes first.
        order.sort(key=lambda server: in_flight[server] if in_flight[server] > bound else -1.0)
        return [there[server] for server in order]

    def served(self, asked: Asked, name: str) -> None:
        """Remember that a server got a request."""
        for key in (asked.session, asked.continues):
            if key:
                self._sessions.put(key, name)
        for part, _ in asked.prefixes:
            self._parts.put(part, name)

    def gone(self, server: str) -> None:
        """Forget a server that has gone."""
        self._sessions.drop(server)
        self._parts.drop(server)

    def _home(self, asked: Asked, there: Mapping[str, int]) -> str:
        """Return the server that has what the request needs, or an empty text."""
        known = (
            asked.server,
            self._sessions.get(asked.continues),
            self._sessions.get(asked.session),
        )
        found = next((server for server in known if server in there), "")
        return found or ("" if asked.turn else self._by_prefix(asked.prefixes, there))

    def _by_prefix(self, prefixes: Prefixes, there: Mapping[str, int]) -> str:
        least = self._bounds.prefix_share * prefixes[-1][1] if prefixes else 0
        for part, length in reversed(prefixes):
            if length < least:
                break
            server = self._parts.get(part)
            if server in there:
                return server
        return ""

    def _bound(self, loads: Collection[float]) -> float:
        mean = sum(loads) / len(loads) if loads else 0.0
        # The request itself counts, so that the mean is never below what one server must take.
        return max(self._bounds.slack, self._bounds.factor * (mean + 1 / max(1, len(loads))))
