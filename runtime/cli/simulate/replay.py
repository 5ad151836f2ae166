"""`caesura replay`: simulates the traffic of a record file under other policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from pathlib import Path

import typer

from caesura.runtime.cli.simulate.options import StudyOptions
from caesura.runtime.cli.simulate.run import start, study_of
from caesura.runtime.cli.trace.export import Span
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.whatif.choice import doubts_about, recorded_of
from caesura.runtime.whatif.stretch import collect
from caesura.simulator.policy import Policy
from caesura.simulator.study.plan import Study, StudyError
from caesura.simulator.workload.records import read_recorded

RECORDS = "stretch.jsonl"
"""The file in the folder of a replay that holds the records of a recording's stretch."""


@dataclass(frozen=True, slots=True)
class Records:
    """A file of records; of a recording also its policy, and what of it cannot be replayed."""

    path: Path
    policy: Policy | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def recorded(record: Path | None, store: Path, said: str, span: Span, out: Path) -> Records:
    """Write the records of a recording's stretch into the folder `out`.

    Raises `UsageError` for a recording that is not there, and for a stretch without sessions.
    """
    if record is not None:
        raise UsageError(f"--recording excludes the file {record}: give only one of them")
    found = catalog.find(store, said)
    policy = recorded_of(found.about)
    times = span.times(found.ended or 0.0) or (-inf, inf)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from error
    stretch = collect(store, int(found.id), *times, out / RECORDS)
    return Records(stretch.path, policy, stretch.left_out, tuple(doubts_about(found.about)))


def replay(records: Records | None, speed: float, how: StudyOptions, out: Path) -> None:
    """Simulate the sessions of a record file, which arrive `speed` times as fast as they did.

    The policy of a recording is simulated too, and the others are compared with it. Raises
    `StudyError` for a file without sessions, and for invalid options.
    """
    if records is None:
        raise UsageError("what shall be replayed? Give a file of records, or --recording ID")
    record = records.path
    try:
        found = read_recorded(record)
    except ValueError as error:
        raise StudyError(str(error)) from None
    arrivals = [session.arrival for session in found.sessions]
    for why, many in (records.left_out or found.left_out).items():
        typer.echo(f"left out: {many} session{'s' * (many != 1)} {why}", err=True)
    for doubt in records.doubts:
        typer.echo(doubt, err=True)
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
    study = study_of(how, "record", record, (rate,), seconds)
    start(_beside_recorded(study, records.policy, how.baseline), how, out)


def _beside_recorded(study: Study, recorded: Policy | None, baseline: str | None) -> Study:
    """Add the policy of the recording to a study, as the baseline unless another one is named."""
    if recorded is None:
        return study
    policies = (recorded, *study.policies)
    return replace(study, policies=policies, baseline=study.baseline if baseline else recorded.name)
