"""The implementation of `caesura trace export`."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files import FORMATS, Held, read_lines, write
from caesura.runtime.recording.window import cut, times_of
from caesura.tools.config.caesura_toml import Config

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".jsonl": "jsonl"}
PERFETTO_SUFFIX = ".perfetto.json"


@dataclass(frozen=True, slots=True)
class Span:
    """The options for a span of time."""

    since: str | None = None
    until: str | None = None
    last: str | None = None

    def times(self, end: float) -> tuple[float, float] | None:
        """Return the start and end for a recording that ends at `end`; None means all of it.

        Raises `UsageError` for an invalid time.
        """
        if self.last is not None:
            if self.since is not None or self.until is not None:
                raise UsageError(
                    f"--last {self.last} excludes --from and --to: give only one of them"
                )
            return end - _seconds(self.last), float("inf")
        if self.since is None and self.until is None:
            return None
        since = float("-inf") if self.since is None else _time(self.since)
        until = float("inf") if self.until is None else _time(self.until)
        if since >= until:
            raise UsageError(f"--from must be before --to, got {self.since} and {self.until}")
        return since, until


def export(
    store: Path,
    wanted: Sequence[str],
    files: Sequence[Path],
    output: Path,
    form: str | None,
    span: Span,
    config: Path | None,
) -> None:
    """Write recordings of the store and of files of records; raise `UsageError` on failure."""
    form = format_of(output, form)
    held = [_cut(recording, bodies, span) for recording, bodies in _found(store, wanted, files)]
    done = write(form, held, output, Config.load(config).services().artifacts)
    console = Console(stderr=True)
    told = f"{output}: {len(held)} recording(s), {done.entries} entries"
    if done.artifacts:
        told += f", {done.artifacts} pictures and sounds"
    console.print(escape(told), highlight=False, soft_wrap=True)
    if done.left_out:
        console.print(
            f"{done.left_out} files of tools are left out: they were deleted or are too large",
            style="yellow",
        )


def format_of(output: Path, form: str | None) -> str:
    """Return the given format, else the one of the file's suffix. Raises `UsageError`."""
    if form is not None:
        if form not in FORMATS:
            raise UsageError(f"unknown format {form!r}; choose from: {', '.join(FORMATS)}")
        return form
    if output.name.endswith(PERFETTO_SUFFIX):
        return "perfetto"
    if output.suffix not in SUFFIXES:
        known = ", ".join((".html", ".json", ".jsonl", PERFETTO_SUFFIX))
        raise UsageError(f"unknown suffix of {output.name!r}; choose from: {known}")
    return SUFFIXES[output.suffix]


def _found(
    store: Path, wanted: Sequence[str], files: Sequence[Path]
) -> Iterator[tuple[Recording, Iterable[str]]]:
    for path in files:
        yield from read_lines(path)
    for said in wanted or ([] if files else ["last"]):
        recording = catalog.find(store, said)
        yield recording, (body for _, body in catalog.bodies(store, int(recording.id)))


def _cut(recording: Recording, bodies: Iterable[str], span: Span) -> Held:
    """Return the recording within the span."""
    if span == Span():
        return recording, bodies
    if span.last is not None and recording.ended is None:
        kept = list(bodies)  # the recording has no end time; its last entry gives it
        times = span.times(_end(map(json.loads, kept)))
    else:
        kept, times = [], span.times(recording.ended or 0.0)
    assert times is not None
    read = (json.loads(body) for body in kept or bodies)
    return recording, cut(read, *times)


def _end(entries: Iterable[Entry]) -> float:
    times = (times_of(entry) for entry in entries)
    return max((each[1] for each in times if each is not None), default=0.0)


def _seconds(said: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", said.strip())
    if found is None:
        raise UsageError(f"invalid --last {said!r}: use a span such as 90s, 10m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def _time(said: str) -> float:
    try:
        return float(said)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(said).timestamp()
    except ValueError:
        raise UsageError(
            f"invalid time {said!r}: use a time such as 2026-01-31T12:00, or recorded seconds"
        ) from None
