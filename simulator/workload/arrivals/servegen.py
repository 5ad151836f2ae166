"""Arrivals by the rate windows of ServeGen (Xiang et al., arXiv 2505.09999).

For each client of a production service and each window of ten minutes, the data has the rate and
the distribution of inter-arrival times. It is CSV with the columns `client`, `window_start_s`,
`rate_rps`, `pattern` (`Gamma` or `Weibull`) and `param1` (its shape). As in ServeGen, every client
is a renewal process of its own, and one factor scales all rates. Here windows are drawn
independently, each in equilibrium, so that a window's mean count is exactly its rate times its
length. A burst that spans two windows is cut.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.simulator.workload.reading import DataError, csv_rows, number_of

WINDOW_SECONDS = 600.0
SMALLEST_SHAPE = {"Gamma": 1e-3, "Weibull": 0.02}
"""The known patterns, with the smallest shape that does not overflow."""
COLUMNS = ("client", "window_start_s", "rate_rps", "pattern", "param1")


@dataclass(frozen=True, slots=True)
class Client:
    """One client in one window: requests per second, and the distribution of the gaps."""

    rate: float
    pattern: str
    shape: float

    def gap(self, rng: random.Random) -> float:
        """Return a draw of an inter-arrival time with mean 1."""
        if self.pattern == "Gamma":
            return rng.gammavariate(self.shape, 1 / self.shape)
        return rng.weibullvariate(1.0, self.shape) / math.gamma(1 + 1 / self.shape)

    def first(self, rng: random.Random) -> float:
        """Return a draw of the time to the first arrival in equilibrium, in units of the mean gap.

        It is a random point of a gap chosen in proportion to its length. For X Weibull of shape k,
        X^k is exponential; chosen in proportion to X, it is gamma of shape 1 + 1/k.
        """
        if self.pattern == "Gamma":
            return rng.random() * rng.gammavariate(self.shape + 1, 1 / self.shape)
        power = rng.gammavariate(1 + 1 / self.shape, 1.0)
        return rng.random() * math.pow(power, 1 / self.shape) / math.gamma(1 + 1 / self.shape)


Windows = Sequence[Sequence[Client]]
"""The clients with a rate above 0, window by window."""


def read_windows(path: Path) -> Windows:
    """Return the windows of a CSV file; raises `DataError` if it is broken or empty."""
    found: dict[int, list[Client]] = {}
    for line, row in csv_rows(path, COLUMNS):
        index = int(number_of(row, "window_start_s", path, line) // WINDOW_SECONDS)
        clients = found.setdefault(index, [])
        if number_of(row, "rate_rps", path, line):
            clients.append(_client(row, path, line))
    if not any(found.values()):
        raise DataError(path, 0, "no window has a rate")
    return [found.get(index, []) for index in range(max(found) + 1)]


def windowed(
    rng: random.Random,
    rate: float,
    seconds: float,
    windows: Windows,
    window_seconds: float = WINDOW_SECONDS,
) -> Iterator[float]:
    """Yield arrivals within `seconds` from successive windows, which begin at a random one.

    The windows wrap around at the end. One factor scales all rates, so that the expected mean over
    the span is `rate`. Other `window_seconds` make the windows pass faster or slower. Raises
    `ValueError` if no client has a rate in the span.
    """
    begin = rng.randrange(len(windows))
    spans = [
        (at * window_seconds, min(seconds, (at + 1) * window_seconds))
        for at in range(math.ceil(seconds / window_seconds))
    ]
    clients = [windows[(begin + at) % len(windows)] for at in range(len(spans))]
    expected = sum(
        client.rate * (end - start)
        for (start, end), there in zip(spans, clients, strict=True)
        for client in there
    )
    if not expected:
        raise ValueError(f"{len(spans)} windows from number {begin} on have no arrivals")
    factor = rate * seconds / expected
    for (start, end), there in zip(spans, clients, strict=True):
        yield from sorted(now for client in there for now in _of(rng, client, factor, start, end))


def _of(
    rng: random.Random, client: Client, factor: float, start: float, end: float
) -> Iterator[float]:
    mean_gap = 1 / (client.rate * factor)
    now = start + client.first(rng) * mean_gap
    while now < end:
        yield now
        now += client.gap(rng) * mean_gap


def _client(row: Mapping[str, str], path: Path, line: int) -> Client:
    pattern = row["pattern"]
    if pattern not in SMALLEST_SHAPE:
        known = ", ".join(SMALLEST_SHAPE)
        raise DataError(path, line, f"unknown pattern {pattern!r}; choose from: {known}")
    shape = number_of(row, "param1", path, line, SMALLEST_SHAPE[pattern])
    return Client(number_of(row, "rate_rps", path, line), pattern, shape)
