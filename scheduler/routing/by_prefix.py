"""A router by prefix: requests go where most of their prompt was served before."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from caesura.scheduler.routing.by_load import Least
from caesura.scheduler.routing.view import Asked, Load

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
