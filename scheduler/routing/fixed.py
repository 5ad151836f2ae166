"""Routers that do not look at loads: by hash, by chance, and in turn."""

from collections.abc import Sequence
from hashlib import blake2b

from caesura.scheduler.routing.view import Asked, Load


def spread(name: str, count: int) -> int:
    """Return a number below `count` that depends on a name only, and is spread evenly.

    Each number draws its weight by hash, and the largest wins (rendezvous hashing, Thaler and
    Ravishankar 1998). So a replica more or less moves one in `count` sessions only.
    """
    return max(range(count), key=lambda place: _weight(name, place))


def _weight(name: str, place: int) -> bytes:
    return blake2b(name.encode(), digest_size=8, salt=place.to_bytes(8, "big")).digest()


class Hash:
    """Serves every session at the replica that its name hashes to; no server must know others."""

    keeps = True
    looks = False

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the replica of the session's name."""
        return spread(asked.session, len(loads))


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
