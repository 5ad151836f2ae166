"""`caesura replay`: simulates the traffic of a record file under other policies."""

from math import inf, nextafter
from pathlib import Path

from caesura.runtime.cli.simulate.options import StudyOptions
from caesura.runtime.cli.simulate.run import start, study_of
from caesura.simulator.study.plan import StudyError
from caesura.simulator.workload.records import read_sessions


def replay(record: Path, speed: float, how: StudyOptions, out: Path) -> None:
    """Simulate the sessions of a record file, which arrive `speed` times as fast as they did.

    Raises `StudyError` for a file without sessions, and for invalid options.
    """
    try:
        arrivals = [session.arrival for session in read_sessions(record)]
    except ValueError as error:
        raise StudyError(str(error)) from None
    if not 0 < speed < inf:
        raise StudyError(f"--speed must be a factor above 0, got {speed:g}")
    span = (arrivals[-1] - arrivals[0]) / speed
    if not span > 0:
        raise StudyError(
            f"{record}: a single session has no rate; record at least two sessions, at different"
            " times"
        )
    rate = (len(arrivals) - 1) / span
    # The last session arrives at the end of the span, and must be included.
    seconds = nextafter(span, inf)
    start(study_of(how, "record", record, (rate,), seconds), how, out)
