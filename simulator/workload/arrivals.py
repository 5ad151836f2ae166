"""The arrivals of sessions: Poisson, bursty, by rate windows, or replayed from a trace.

Every process yields ascending seconds from 0 on at a mean rate per second. With the same generator,
another rate gives the same Poisson and bursty arrivals, closer together or further apart.

The rate windows are those of ServeGen (Xiang et al., arXiv 2505.09999). For each client of a
production service and each window of ten minutes, the data has the rate and the distribution of
inter-arrival times. It is CSV with the columns `client`, `window_start_s`, `rate_rps`, `pattern`
(`Gamma` or `Weibull`) and `param1` (its shape). As in ServeGen, every client is a renewal process
of its own, and one factor scales all rates. Here windows are drawn independently, each in
equilibrium, so that a window's mean count is exactly its rate times its length. A burst that spans
two windows is cut.

The traces are Azure LLM inference 2023 (Patel et al., "Splitwise: Efficient generative LLM
inference using phase splitting", ISCA 2024), CSV with a column `TIMESTAMP`, and Mooncake (Qin et
al., FAST 2025), JSON lines with a `timestamp` in milliseconds. Other columns and fields are
ignored.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from caesura.simulator.workload.options import Options
from caesura.simulator.workload.reading import DataError, csv_rows, json_lines, number_of
from caesura.simulator.workload.sources import SOURCES, recorded_sessions

RECORDED = "recorded"
Times = Iterator[float]


@dataclass(frozen=True, slots=True)
class Span:
    """The wanted arrivals: `rate` sessions per second for `seconds`, and the data file."""

    options: Options
    data: Path | None
    rate: float
    seconds: float

    @property
    def trace(self) -> Path:
        """Return the file of arrivals; raises `ValueError` if there is none."""
        # If the sessions need no data file, a given one must be for the arrivals.
        spare = None if SOURCES[self.options.name].file else self.data
        trace = self.options.path("trace") or spare
        if trace is None:
            raise self.options.error("these arrivals need a file: give trace=PATH")
        return trace


def arrivals_of(span: Span, rng: random.Random) -> tuple[str, Times]:
    """Return a short description of the arrivals, and their seconds within the span.

    Raises `ValueError` for a wrong rate, span or process, and for a bad file.
    """
    options = span.options
    is_record = options.name == "record"
    name = options.among("arrivals", PROCESSES, RECORDED if is_record else "poisson")
    if name == RECORDED and not is_record:
        raise options.error("only the workload record has recorded arrivals")
    if not 0 < span.seconds < math.inf:
        raise options.error(f"the seconds of arrivals must be positive, got {span.seconds}")
    if not (0 < span.rate < math.inf or (span.rate == 0 and name == RECORDED)):
        raise options.error(f"the rate per second must be a positive number, got {span.rate}")
    times = PROCESSES[name](span, rng)
    rate = f"{span.rate:g} in a second" if span.rate else "at their own rate"
    return f"{name} arrivals, {rate}", itertools.takewhile(lambda now: now < span.seconds, times)


def _poisson(span: Span, rng: random.Random) -> Times:
    return poisson(rng, span.rate)


def _bursty(span: Span, rng: random.Random) -> Times:
    return bursty(rng, span.rate, span.options.positive("cv", 2.0))


def _azure(span: Span, rng: random.Random) -> Times:
    return replayed(rng, span.rate, span.seconds, azure_stamps(span.trace))


def _mooncake(span: Span, rng: random.Random) -> Times:
    stamps = mooncake_stamps(span.trace)
    return replayed(rng, span.rate, span.seconds, stamps, MOONCAKE_GRAIN)


def _servegen(span: Span, rng: random.Random) -> Times:
    window = span.options.positive("window", WINDOW_SECONDS)
    return windowed(rng, span.rate, span.seconds, read_windows(span.trace), window)


def _recorded(span: Span, _: random.Random) -> Times:
    """Yield each recorded arrival once from 0 on, stretched to the rate if there is one."""
    assert span.data is not None, "the sessions have been read from it"
    arrivals = [session.arrival for session in recorded_sessions(span.options, span.data)]
    first, gaps = arrivals[0], len(arrivals) - 1
    lasted = (arrivals[-1] - first) or 1.0
    whole = gaps / span.rate if span.rate else lasted
    return ((arrival - first) / lasted * whole for arrival in arrivals)


PROCESSES: dict[str, Callable[[Span, random.Random], Times]] = {
    "poisson": _poisson,
    "bursty": _bursty,
    "azure": _azure,
    "mooncake": _mooncake,
    "servegen": _servegen,
    RECORDED: _recorded,
}
"""All arrival processes by name."""


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


MOONCAKE_GRAIN = 3.0
"""The resolution of Mooncake's stamps in seconds."""


def azure_stamps(path: Path) -> list[float]:
    """Return the ascending arrivals in seconds of one of Azure's CSV files."""
    stamps = []
    for line, row in csv_rows(path, ["TIMESTAMP"]):
        try:
            moment = datetime.fromisoformat(row["TIMESTAMP"])
        except ValueError as error:
            raise DataError(path, line, f"TIMESTAMP: {error}") from error
        # The trace has no time zone; only differences matter.
        stamps.append(moment.replace(tzinfo=UTC).timestamp())
    return _checked(path, stamps)


def mooncake_stamps(path: Path) -> list[float]:
    """Return the ascending arrivals in seconds of one of Mooncake's JSON-lines files."""
    return _checked(
        path,
        [number_of(row, "timestamp", path, line) / 1000 for line, row in json_lines(path)],
    )


def _checked(path: Path, stamps: list[float]) -> list[float]:
    stamps.sort()
    if len(stamps) < 2 or stamps[0] == stamps[-1]:
        raise DataError(path, 0, "a trace needs at least two arrivals at different seconds")
    return stamps
