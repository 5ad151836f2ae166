"""The peak memory of a batch with known lengths (Past-Future, section 3.3).

Memory grows with every step and falls when a request ends, so it peaks just before an end. Let the
batch be in order of the tokens left to decode, most first. Then only the first i requests are still
there when the i-th ends:

    M_i = (sum of held_j, j <= i) + remaining_i * i        (equation 3)
    M* = max M_i                                           (equation 4)
"""

from bisect import bisect_right

import numpy as np

from caesura.scheduler.predict.lengths import Tokens


class Peak:
    """M* of a batch, from the tokens that its requests hold and have left to decode, both (n,).

    One more request moves all requests that end before it by one place. So `with_one` finds the
    new M* in O(log n), from sums that are computed once.
    """

    def __init__(self, held: Tokens, remaining: Tokens) -> None:
        order = np.argsort(-remaining, kind="stable")
        self._sums(held[order], remaining[order])

    def _sums(self, held: Tokens, remaining: Tokens) -> None:
        self._held, self._remaining = held, remaining
        sums = np.cumsum(held)
        needed = sums + remaining * np.arange(1, len(held) + 1)
        # With one more request in place, each request that ends sooner needs a further token for
        # each of its steps, besides what the new request holds.
        beside = needed + remaining
        self._keys: list[int] = (-remaining).tolist()
        self._before: list[int] = [0, *sums.tolist()]
        self._later: list[int] = [0, *np.maximum.accumulate(needed).tolist()]
        self._sooner: list[int] = [*np.maximum.accumulate(beside[::-1])[::-1].tolist(), 0]

    @property
    def size(self) -> int:
        """Return the number of requests in the batch."""
        return len(self._keys)

    @property
    def tokens(self) -> int:
        """Return M* in tokens; 0 for an empty batch."""
        return self._later[-1]

    def with_one(self, held: int, remaining: int) -> int:
        """Return M* of the batch with one more request."""
        place = bisect_right(self._keys, -remaining)
        own = self._before[place] + held + remaining * (place + 1)
        return max(self._later[place], own, self._sooner[place] + held)

    def add(self, held: int, remaining: int) -> None:
        """Add a request to the batch."""
        place = bisect_right(self._keys, -remaining)
        self._sums(np.insert(self._held, place, held), np.insert(self._remaining, place, remaining))
