"""Which server a request goes to: the one that has served its session, unless it is overloaded.

A session that nobody has served yet goes to the server that holds the beginning of its prompt, and
else to one by rendezvous hashing (Thaler and Ravishankar 1998): several routers that know nothing
of each other choose the same. No server takes more than its share of the load, as in consistent
hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from caesura.runtime.errors import UsageError
from caesura.runtime.front.asked import Asked
from caesura.runtime.front.recent import Recent


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a server is overloaded, and how much is remembered."""

    factor: float = 1.25
    """A server may have this many times the mean number of requests in flight..."""
    slack: int = 4
    """...and always this many. What is below both is no reason to leave a session's KV cache."""
    prefix_share: float = 0.5
    """The share of a first prompt's blocks that a server must hold to get a new session."""
    max_sessions: int = 100_000
    """Sessions that are remembered, and blocks; the least recently used are forgotten first."""
    shared: bool = False
    """Whether the servers share one store of responses. If not, what continues an earlier answer
    waits for the server that made it, however loaded that is."""

    def __post_init__(self) -> None:
        if self.factor < 1 or self.slack < 0 or self.max_sessions < 1:
            raise UsageError(
                "factor must be at least 1, slack at least 0 and max_sessions at least 1, got"
                f" {self.factor:g}, {self.slack} and {self.max_sessions}"
            )


class Routes:
    """The memory of who has served which session, and the choice of a server by it."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._sessions = Recent(self._bounds.max_sessions)
        self._blocks = Recent(self._bounds.max_sessions)

    def ranked(self, asked: Asked, loads: Mapping[str, float]) -> list[str]:
        """Return the servers in the order in which they should be tried, the best first.

        `loads` holds every server that is there, with its requests in flight. Overloaded servers
        come last.
        """
        home = self._home(asked, loads)
        if home and asked.continues and not self._bounds.shared:
            return [home]
        key = asked.session or asked.continues
        if key:
            order = sorted(loads, key=lambda server: _weight(key, server), reverse=True)
        else:
            order = sorted(loads, key=lambda server: (loads[server], server))
        if home:
            order.remove(home)
            order.insert(0, home)
        bound = self._bound(loads.values())
        # Sorting is stable: those below the bound keep their order, and of the others the one with
        # the least load comes first.
        return sorted(order, key=lambda server: loads[server] if loads[server] > bound else -1.0)

    def served(self, asked: Asked, server: str) -> None:
        """Remember that a server got a request."""
        for key in (asked.session, asked.continues):
            if key:
                self._sessions.put(key, server)
        for block in asked.blocks:
            self._blocks.put(block, server)

    def gone(self, server: str) -> None:
        """Forget a server that has gone."""
        self._sessions.drop(server)
        self._blocks.drop(server)

    def _home(self, asked: Asked, there: Collection[str]) -> str:
        """Return the server that has what the request needs, or an empty text."""
        known = (
            asked.server,
            self._sessions.get(asked.continues),
            self._sessions.get(asked.session),
        )
        found = next((server for server in known if server in there), "")
        return found or ("" if asked.follows else self._by_prefix(asked.blocks, there))

    def _by_prefix(self, blocks: Sequence[str], there: Collection[str]) -> str:
        needed = max(1, round(len(blocks) * self._bounds.prefix_share))
        for count in range(len(blocks), needed - 1, -1):
            server = self._blocks.get(blocks[count - 1])
            if server in there:
                return server
        return ""

    def _bound(self, loads: Collection[float]) -> float:
        mean = sum(loads) / len(loads) if loads else 0.0
        # The request itself counts, so that the mean is never below what one server must take.
        return max(self._bounds.slack, self._bounds.factor * (mean + 1 / max(1, len(loads))))


def _weight(key: str, server: str) -> bytes:
    """Return a server's weight for a key: the highest is chosen, and others stay as they are."""
    return hashlib.blake2b(f"{key}\0{server}".encode("utf-8", "surrogatepass")).digest()
