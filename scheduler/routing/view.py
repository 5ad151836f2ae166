"""What a router knows of a request and of the replicas, and what it answers."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is to be routed: one turn of a session.

    `turn` counts the session's requests from 0 on. `tokens` is the length of its prompt. `prefixes`
    identify parts of the prompt from its begin on, with their tokens, the shortest first; equal
    keys mean equal tokens. `holder` is the replica that served the session's last turn.
    """

    session: str
    turn: int
    tokens: int
    prefixes: tuple[tuple[Hashable, int], ...] = ()
    holder: int | None = None


@dataclass(slots=True)
class Load:
    """The load of one replica, as the router last heard of it, with what was sent since.

    `requests` are those that run or wait in its queue, with `tokens` in their contexts. Paused
    sessions do not count. It can run `most_requests` at once, and its KV cache holds
    `most_tokens`.
    """

    requests: int = 0
    tokens: int = 0
    most_requests: int = 1 << 30
    most_tokens: int = 1 << 60

    def has_room(self, tokens: int) -> bool:
        """Return whether a request of `tokens` tokens would run at once."""
        if not self.requests:
            return True
        return self.requests < self.most_requests and self.tokens + tokens <= self.most_tokens


class Router(Protocol):
    """Chooses the replica that serves a request."""

    @property
    def keeps(self) -> bool:
        """Whether a session's later requests go to its replica without being asked about."""
        ...

    @property
    def looks(self) -> bool:
        """Whether a choice depends on the loads, and not only on the request."""
        ...

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        """Return the replica of a request; None: it waits until a replica has room."""
        ...


def least_loaded(loads: Sequence[Load], start: int = 0) -> int:
    """Return the replica with the fewest requests; of equals the first one from `start` on."""
    count = len(loads)
    fewest = min(load.requests for load in loads)
    return next(
        place
        for place in (at % count for at in range(start, start + count))
        if loads[place].requests == fewest
    )
