"""Which of several servers gets a request: what a router sees and answers, and simple routers.

One `Router` is asked by all: by the front of real servers (`homes`), by the client of data-parallel
engines (`data_parallel`), and by the simulator, which runs both of these and the routers here.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

Prefixes = tuple[tuple[Hashable, int], ...]
"""Keys of parts of a prompt from its begin on, with their lengths, the shortest first.

Equal keys mean equal text. Lengths are tokens, or characters where nobody has counted tokens.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is to be routed: one turn of a session."""

    session: str = ""
    """The session's name, its conversation's id, or a digest of its first prompt; may be empty."""
    turn: int = 0
    """0 for a session's first request; a caller that cannot count says 1 of all others."""
    tokens: int = 0
    """The length of its prompt."""
    prefixes: Prefixes = ()
    holder: int | None = None
    """The place that served the session's last turn, if the caller knows it."""
    continues: str = ""
    """The id of an earlier answer: of a response, or of a conversation."""
    server: str = ""
    """The server that the client asks for, as an earlier answer named it."""


@dataclass(slots=True)
class Load:
    """The load of one place, as the router last heard of it, with what was sent since.

    `requests` are those that run or wait in its queue, with `tokens` in their contexts, of which
    `prefill_tokens` are to be computed before their first tokens. Paused sessions do not count. It
    can run `most_requests` at once, and its KV cache holds `most_tokens`. Its `name` stays while
    other places come and go.
    """

    requests: float = 0
    tokens: int = 0
    most_requests: int = 1 << 30
    most_tokens: int = 1 << 60
    prefill_tokens: int = 0
    name: str = ""

    def has_room(self, tokens: int) -> bool:
        """Return whether a request of `tokens` tokens would run at once."""
        if not self.requests:
            return True
        return self.requests < self.most_requests and self.tokens + tokens <= self.most_tokens


class Router(ABC):
    """Chooses the place that serves a request. The same requests and loads, the same choices."""

    keeps = False
    """Whether a session's later requests go to its place without being asked about."""
    looks = True
    """Whether a choice depends on the loads, and not only on the request."""

    @abstractmethod
    def choose(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        """Return the index of the place; None: the request waits until a place has room."""

    def served(self, asked: Asked, name: str) -> None:  # noqa: B027
        """Learn which place got a request."""

    def ended(self, decoded_tokens: int) -> None:  # noqa: B027
        """Learn that a turn has ended, and how many tokens it decoded."""


def rendezvous(key: str, name: str) -> bytes:
    """Return a place's weight for a key, by hash: the highest wins (Thaler and Ravishankar 1998).

    So routers that know nothing of each other choose the same, and a place more or less moves only
    what it wins or had won.
    """
    return blake2b(f"{key}\0{name}".encode("utf-8", "surrogatepass")).digest()


def least_loaded(loads: Sequence[Load], start: int = 0) -> int:
    """Return the replica with the fewest requests; of equals the first one from `start` on."""
    count = len(loads)
    fewest = min(load.requests for load in loads)
    return next(
        place
        for place in (at % count for at in range(start, start + count))
        if loads[place].requests == fewest
    )


class Hash(Router):
    """Serves every session at the replica that its name hashes to; no server must know others."""

    keeps = True
    looks = False

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the place of the session's name."""
        places = range(len(loads))
        return max(places, key=lambda place: rendezvous(asked.session, loads[place].name))


class RandomChoice(Router):
    """Serves every request at a replica by chance: by a hash of its session, turn and `seed`."""

    keeps = False
    looks = False

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica that the request's name hashes to."""
        name = f"{self._seed}/{asked.turn}/{asked.session}".encode()
        return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % len(loads)


class RoundRobin(Router):
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


class Least(Router):
    """Serves every request at the replica with the fewest requests; of equals in turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the least loaded replica."""
        place = least_loaded(loads, self._next)
        self._next = place + 1
        return place


class Affinity(Router):
    """Serves a session where it began: at the replica that had the fewest requests then.

    With a `slack` above 0, a session leaves a replica that has more than `slack` requests more than
    the least loaded one.
    """

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


class OneQueue(Router):
    """Lets requests wait in one queue until a replica has room for them.

    The replica that served the session before goes first, if it has room. Otherwise the request
    goes to the least loaded one with room, where its context is computed again.
    """

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


class PrefixRouter(Router):
    """Serves a request where the longest part of its prompt was served before.

    If the loads of the replicas differ by more than `imbalance` requests, or less than the share
    `match` of the prompt is known, the least loaded replica serves it. These are the rules of Ray
    Serve's `PrefixCacheAffinityRouter`, with the least loaded of all replicas in place of two
    random ones.
    """

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
        self._seen: OrderedDict[Hashable, dict[str, None]] = OrderedDict()

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica that knows most of the prompt, or the least loaded one."""
        place = self._known(asked, loads)
        return self._least.choose(asked, loads) if place is None else place

    def _known(self, asked: Asked, loads: Sequence[Load]) -> int | None:
        requests = [load.requests for load in loads]
        if max(requests) - min(requests) > self._imbalance:
            return None
        for key, tokens in reversed(asked.prefixes):
            if tokens < self._match * asked.tokens:
                return None
            known = self._seen.get(key, ())
            places = [place for place, load in enumerate(loads) if load.name in known]
            if places:
                return min(places, key=lambda place: requests[place])
        return None

    def served(self, asked: Asked, name: str) -> None:
        """Remember that a place has the prompt of a request."""
        seen = self._seen
        for key, _ in asked.prefixes:
            seen.setdefault(key, {})[name] = None
            seen.move_to_end(key)
        while len(seen) > self._most:
            seen.popitem(last=False)
