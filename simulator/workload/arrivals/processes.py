"""When sessions arrive: Poisson, in bursts, or as the requests of a trace did.

Every process yields ascending seconds from 0 on at a mean rate per second. With the same
generator another rate gives the same Poisson and bursty arrivals, closer together or further apart.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

Times = Iterator[float]


def poisson(rng: random.Random, rate: float) -> Times:
    """Yield a Poisson process."""
    now = 0.0
    while True:
        now += rng.expovariate(rate)
        yield now


def bursty(rng: random.Random, rate: float, cv: float) -> Times:
    """Yield a renewal process whose gamma inter-arrival times have coefficient of variation `cv`.

    It begins in equilibrium (Cox, Renewal Theory, 1962, section 5): the first arrival is at a
    random point of a gap chosen in proportion to its length. Otherwise a burst would stand at the
    very beginning, and the mean count of a short run would be too high. Raises `ValueError` unless
    `cv` is positive.
    """
    if not cv > 0:
        raise ValueError(f"a coefficient of variation is positive, not {cv:g}")
    shape = 1 / cv**2
    scale = 1 / (rate * shape)
    now = rng.random() * rng.gammavariate(shape + 1, scale)
    while True:
        yield now
        now += rng.gammavariate(shape, scale)


def replayed(
    rng: random.Random, rate: float, seconds: float, stamps: Sequence[float], grain: float = 0.0
) -> Times:
    """Yield as many arrivals of a trace as the rate asks for in so many seconds.

    They are a part of the trace from a random point of it on, beginning again at its end, and
    stretched as a whole so that exactly `rate * seconds` of them, rounded, come within the span:
    bursts stay, but the load is the one that was asked for. `stamps` are ascending seconds. A
    trace that knows them only to a `grain` of seconds has many at the same one; they are spread
    evenly at random over it. Raises `ValueError` for a part of no duration.
    """
    if grain:
        stamps = sorted(stamp + rng.random() * grain for stamp in stamps)
    gaps = [later - earlier for earlier, later in pairwise(stamps)]
    begin, count = rng.randrange(len(gaps)), round(rate * seconds)
    part = [gaps[(begin + at) % len(gaps)] for at in range(count)]
    if count and not sum(part):
        raise ValueError(f"{count} arrivals of the trace are at the same second")
    stretch, passed = seconds / (sum(part) or 1.0), 0.0
    for gap in part:
        yield passed * stretch
        passed += gap
