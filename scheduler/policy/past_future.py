"""Admission while the batch's future peak fits, with lengths drawn from the recent past.

This is Past-Future (Gong et al., ASPLOS 2025; Algorithm 1). Every step draws the length of each
running request from P(l | l > its decoded tokens), and that of a candidate from P(l). The candidate
joins if the batch's peak M* leaves the reserve free. As in the paper, a draw is not kept until the
next step: the more a request has decoded, the better the next draw is.

In traffic with tools the lengths are those of segments. A paused request's KV is reclaimable, so
a call ends its growth as the end of the request would. Unlike the paper, each kind of request has
its own window once it has enough lengths, since lengths differ by kind.
"""

from bisect import bisect_right
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.policy.admission import Batched, Gate
from caesura.scheduler.predict.tables import WINDOW, Kinds, Lengths, Tokens

MAX_KINDS = 100
MIN_LENGTHS = 32
"""The number of lengths that a kind needs before its own window is used."""

MAX_DRAWS = 5
DRAWN_REQUESTS = 200
"""A batch of n requests is drawn 1 + `DRAWN_REQUESTS` // n times, up to `MAX_DRAWS`.

The highest peak counts: "when the size of the running batch is low, the sampling prediction is
repeated several times" (section 4). The numbers are from the authors' artifact."""


class PastFuture:
    """Draws lengths from `random`; its only state is the windows, which `observe` fills.

    `reserve` is the share of the capacity that M* leaves free (0.03 to 0.10 in the paper).
    `window` is the number of lengths that are kept. At first, half of the window holds `longest`,
    the preset maximum length. A request's own limit bounds every draw. Raises `ValueError` for a
    reserve outside [0, 1), a window below 2, or a longest length below 1.
    """

    name = "past-future"

    def __init__(
        self,
        random: Random,
        reserve: float = 0.05,
        window: int = WINDOW,
        longest: int = 2048,
    ) -> None:
        if not (0 <= reserve < 1 and window >= 2 and longest >= 1):
            raise ValueError(
                "past-future: reserve must be in [0, 1), window >= 2 and longest >= 1,"
                f" got {reserve!r}, {window!r} and {longest!r}"
            )
        self._random = random
        self._reserve = reserve
        self._lengths = Kinds(
            Lengths(longest, window=window, recent=[longest] * (window // 2)),
            lambda _: Lengths(longest, window=window),
            MAX_KINDS,
        )

    def begin(self, running: Sequence[Batched], capacity_tokens: int) -> Gate:
        """Return a gate that draws the batch's lengths when its first candidate asks."""
        return Futures(self, running, capacity_tokens * (1 - self._reserve))

    def observe(self, kind: str, generated_tokens: int) -> None:
        """Add a length to the windows; raises `ValueError` if it is negative."""
        self._lengths.together.observe(generated_tokens)
        self._lengths.learn(kind).observe(generated_tokens)

    def remaining(self, batch: Sequence[Batched], draws: int) -> Tokens:
        """Return drawn tokens left to decode for each of n requests, as (draws, n)."""
        generated = np.array([one.generated_tokens for one in batch], dtype=np.int64)
        most = np.array([one.most_new_tokens for one in batch], dtype=np.int64)
        uniform = self._uniform(draws, len(batch))
        places: dict[str, list[int]] = {}
        for place, one in enumerate(batch):
            places.setdefault(one.kind, []).append(place)
        lengths = np.empty((draws, len(batch)), dtype=np.int64)
        for kind, of_kind in places.items():
            window = self._window(kind)
            lengths[:, of_kind] = window.samples(generated[of_kind], uniform[:, of_kind])
        return np.maximum(0, np.minimum(lengths, most) - generated)

    def remaining_of(self, one: Batched) -> int:
        """Return a draw of the tokens that one request has left to decode."""
        length = self._window(one.kind).sample(one.generated_tokens, self._random.random())
        return max(0, min(length, one.most_new_tokens) - one.generated_tokens)

    def _window(self, kind: str) -> Lengths:
        window = self._lengths.find(kind)
        return window if window and window.count >= MIN_LENGTHS else self._lengths.together

    def _uniform(self, draws: int, size: int) -> NDArray[np.float64]:
        words = np.frombuffer(self._random.randbytes(4 * draws * size), dtype="<u4")
        return words.reshape(draws, size) / 2.0**32


class Futures:
    """The gate of one step: the batch in several drawn futures, more for a smaller batch.

    A candidate's length is drawn in each future when it asks. An empty batch admits any request,
    which would otherwise wait for ever.
    """

    def __init__(self, policy: PastFuture, running: Sequence[Batched], limit_tokens: float) -> None:
        self._policy = policy
        self._limit = limit_tokens
        self._running = tuple(running)
        self._draws = min(MAX_DRAWS, 1 + DRAWN_REQUESTS // max(1, len(running)))
        self._futures: list[Peak] = []

    def admits(self, candidate: Batched) -> bool:
        """Return whether the highest peak of the batch with the candidate fits."""
        if not self._futures:
            # The batch is drawn late because most steps have no candidate.
            held = np.array([one.held_tokens for one in self._running], dtype=np.int64)
            drawn = self._policy.remaining(self._running, self._draws)
            self._futures = [Peak(held, remaining) for remaining in drawn]
        held_tokens, policy = candidate.held_tokens, self._policy
        pairs = [(future, policy.remaining_of(candidate)) for future in self._futures]
        peak = max(future.with_one(held_tokens, remaining) for future, remaining in pairs)
        if peak > self._limit and self._futures[0].size:
            return False
        for future, remaining in pairs:
            future.add(held_tokens, remaining)
        return True


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
