"""Which replica of an engine serves a request: what a router sees and answers, and the routers."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
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


class Hash:
    """Serves every session at the replica that its name hashes to; no server must know others."""

    keeps = True
    looks = False

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica of the session's name."""
        return spread(asked.session, len(loads))


def spread(name: str, count: int) -> int:
    """Return a number below `count` that depends on a name only, and is spread evenly.

    Each number draws its weight by hash, and the largest wins (rendezvous hashing, Thaler and
    Ravishankar 1998). So a replica more or less moves one in `count` sessions only.
    """
    return max(range(count), key=lambda place: _weight(name, place))


def _weight(name: str, place: int) -> bytes:
    return blake2b(name.encode(), digest_size=8, salt=place.to_bytes(8, "big")).digest()


class RandomChoice:
    """Serves every request at a replica by chance: by a hash of its session, turn and `seed`."""

    keeps = False
    looks = False

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica that the request's name hashes to."""
        name = f"{self._seed}/{asked.turn}/{asked.session}".encode()
        return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % len(loads)


class RoundRobin:
    """Serves requests at the replicas in turn."""

    keeps = False
    looks = False

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the next replica."""
        place = self._next % len(loads)
        self._next += 1
        return place


class Least:
    """Serves every request at the replica with the fewest requests; of equals in turn."""

    keeps = False
    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the least loaded replica."""
        place = least_loaded(loads, self._next)
        self._next = place + 1
        return place


class Affinity:
    """Serves a session where it began: at the replica that had the fewest requests then.

    With a `slack` above 0, a session leaves a replica that has more than `slack` requests more than
    the least loaded one.
    """

    looks = True

    def __init__(self, slack: int = 0) -> None:
        """Create it; raises `ValueError` for a negative slack."""
        if slack < 0:
            raise ValueError(f"slack must be 0 (never leave) or a number of requests, got {slack}")
        self._slack = slack
        self._least = Least()
        self.keeps = not slack

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the session's replica, or the least loaded one."""
        holder = asked.holder
        if holder is not None:
            fewest = min(load.requests for load in loads)
            if not self._slack or loads[holder].requests <= fewest + self._slack:
                return holder
        return self._least.choose(asked, loads)


class OneQueue:
    """Lets requests wait in one queue until a replica has room for them.

    The replica that served the session before goes first, if it has room. Otherwise the request
    goes to the least loaded one with room, where its context is computed again.
    """

    keeps = False
    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        """Return a replica with room; None if no replica has room."""
        if asked.holder is not None and loads[asked.holder].has_room(asked.tokens):
            return asked.holder
        count = len(loads)
        order = (at % count for at in range(self._next, self._next + count))
        room = [place for place in order if loads[place].has_room(asked.tokens)]
        if not room:
            return None
        place = min(room, key=lambda one: loads[one].requests)
        self._next = place + 1
        return place


MOST_PREFIXES = 1_000_000
"""The prefixes that are remembered; those that were not asked for longest are forgotten first."""


class PrefixRouter:
    """Serves a request where the longest part of its prompt was served before.

    If the loads of the replicas differ by more than `imbalance` requests, or less than the share
    `match` of the prompt is known, the least loaded replica serves it. These are the rules of Ray
    Serve's `PrefixCacheAffinityRouter`, with the least loaded of all replicas in place of two
    random ones.
    """

    keeps = False
    looks = True

    def __init__(
        self, imbalance: int = 16, match: float = 0.1, most_prefixes: int = MOST_PREFIXES
    ) -> None:
        """Create it; raises `ValueError` for a negative number and for a share above 1."""
        if imbalance < 0 or not 0 <= match <= 1 or most_prefixes < 1:
            raise ValueError(
                "imbalance must be requests >= 0, match a share from 0 to 1 and most_prefixes"
                f" above 0, got {imbalance}, {match:g} and {most_prefixes}"
            )
        self._imbalance = imbalance
        self._match = match
        self._most = most_prefixes
        self._least = Least()
        self._seen: OrderedDict[Hashable, dict[int, None]] = OrderedDict()

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica that knows most of the prompt, or the least loaded one."""
        place = self._known(asked, loads)
        if place is None:
            place = self._least.choose(asked, loads)
        self._remember(asked, place)
        return place

    def _known(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        requests = [load.requests for load in loads]
        if max(requests) - min(requests) > self._imbalance:
            return None
        for key, tokens in reversed(asked.prefixes):
            if tokens < self._match * asked.tokens:
                return None
            places = self._seen.get(key)
            if places:
                return min(places, key=lambda place: requests[place])
        return None

    def _remember(self, asked: Asked, place: int) -> None:
        seen = self._seen
        for key, _ in asked.prefixes:
            seen.setdefault(key, {})[place] = None
            seen.move_to_end(key)
        while len(seen) > self._most:
            seen.popitem(last=False)
