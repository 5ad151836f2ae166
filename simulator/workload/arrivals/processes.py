"""Arrival processes: Poisson, bursty, or replayed from a trace.

Every process yields ascending seconds from 0 on at a mean rate per second. With the same generator,
another rate gives the same Poisson and bursty arrivals, closer together or further apart.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

Times = Iterator[float]


def poisson(rng: random.Random, rate: float) -> Times:
    """Yield the arrivals of a Poisson process."""
    now = 0.0
    while True:
        now += rng.expovariate(rate)
        yield now


def bursty(rng: random.Random, rate: float, cv: float) -> Times:
    """Yield a renewal process whose gamma inter-arrival times have coefficient of variation `cv`.

    It begins in equilibrium (Cox, Renewal Theory, 1962, section 5): the first arrival is at a
    random point of a gap chosen in proportion to its length. Otherwise every run would begin with
    an arrival, and the mean count of a short run would be too high. Raises `ValueError` unless
    `cv` is positive.
    """
    if not cv > 0:
        raise ValueError(f"the coefficient of variation must be positive, got {cv:g}")
    shape = 1 / cv**2
    scale = 1 / (rate * shape)
    now = rng.random() * rng.gammavariate(shape + 1, scale)
    while True:
        yield now
        now += rng.gammavariate(shape, scale)


def replayed(
    rng: random.Random, rate: float, seconds: float, stamps: Sequence[float], grain: float = 0.0
) -> Times:
    """Yield `rate * seconds` arrivals of a trace, rounded, within `seconds`.

    They are a part of the trace from a random point on, which wraps around at the end. The part is
    stretched as a whole, so that bursts stay and the load is the given one. `stamps` are ascending
    seconds. If the trace has a resolution of `grain` seconds, its stamps are spread uniformly at
    random over the grain. Raises `ValueError` for a part of no duration.
    """
    if grain:
        stamps = sorted(stamp + rng.random() * grain for stamp in stamps)
    gaps = [later - earlier for earlier, later in pairwise(stamps)]
    begin, count = rng.randrange(len(gaps)), round(rate * seconds)
    part = [gaps[(begin + at) % len(gaps)] for at in range(count)]
    if count and not sum(part):
        raise ValueError(f"{count} successive arrivals of the trace are at the same second")
    stretch, passed = seconds / (sum(part) or 1.0), 0.0
    for gap in part:
        yield passed * stretch
        passed += gap
