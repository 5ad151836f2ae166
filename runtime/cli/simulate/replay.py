"""`caesura replay`: simulates the traffic of a record file under other policies."""

from math import inf, nextafter
from pathlib import Path

from caesura.runtime.cli.simulate.options import StudyOptions
from caesura.runtime.cli.simulate.run import start, study_of
from caesura.runtime.cli.trace.export import Span
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.storage import reading
from caesura.runtime.whatif.stretch import collect
from caesura.simulator.study.plan import StudyError
from caesura.simulator.workload.records import read_sessions

RECORDS = "stretch.jsonl"
"""The file in the folder of a replay that holds the records of a recording's stretch."""


def recorded(record: Path | None, store: Path, said: str, span: Span, out: Path) -> Path:
    """Write the records of a recording's stretch into the folder `out`; return the file.

    Raises `UsageError` for a recording that is not there, and for a stretch without sessions.
    """
    if record is not None:
        raise UsageError(f"--recording excludes the file {record}: give only one of them")
    found = reading.find(store, said)
    times = span.times(found.ended or 0.0) or (-inf, inf)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from error
    return collect(store, int(found.id), *times, out / RECORDS).path


def replay(record: Path | None, speed: float, how: StudyOptions, out: Path) -> None:
    """Simulate the sessions of a record file, which arrive `speed` times as fast as they did.

    Raises `StudyError` for a file without sessions, and for invalid options.
    """
    if record is None:
        raise UsageError("what shall be replayed? Give a file of records, or --recording ID")
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
