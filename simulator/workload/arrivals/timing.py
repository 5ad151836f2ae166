"""Make the arrivals of sessions from a spec's options."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from caesura.simulator.workload.arrivals.processes import Times, bursty, poisson, replayed
from caesura.simulator.workload.arrivals.servegen import WINDOW_SECONDS, read_windows, windowed
from caesura.simulator.workload.arrivals.traces import MOONCAKE_GRAIN, azure_stamps, mooncake_stamps
from caesura.simulator.workload.options import Options
from caesura.simulator.workload.sources import SOURCES, recorded_sessions

RECORDED = "recorded"


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
