"""Trajectories as records of sessions, so that `caesura replay` simulates them.

A branch is cut where a person, or the template, wrote to it: each part is a session that waits for
tools alone. It begins with its whole context, since records do not say what sessions share.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.adapters.atif import read_atif
from caesura.runtime.trajectories.files import read_jsonl
from caesura.runtime.trajectories.trajectory import Segment, Trajectory
from caesura.scheduler.records import PauseRecord, SessionRecord

UNTIMED = "whose times are not known"
UNSAMPLED = "that had sampled no token"
Record = PauseRecord | SessionRecord


def read_trajectories(path: Path) -> list[Trajectory] | None:
    """Return the trajectories of a file in JSON lines or in ATIF; None: it is another kind.

    Raises `UsageError` for one that is broken.
    """
    try:
        with path.open("rb") as file:
            first = next(filter(bytes.strip, file), b"")
    except OSError:
        return None  # who reads it as records says why
    try:
        told = json.loads(first)
    except ValueError:
        told = None
    if isinstance(told, dict) and "branches" in told and "session" in told:
        return read_jsonl(path)
    is_atif = isinstance(told, dict) and "schema_version" in told
    is_atif = is_atif or (told is None and path.suffix == ".json")
    return read_atif(path) if is_atif else None


def write_records(trajectories: Iterable[Trajectory], path: Path) -> Mapping[str, int]:
    """Write the records of trajectories to a file; return how many sessions lack, by reason.

    Raises `UsageError` if none is left, and for a file that cannot be written.
    """
    left_out: Counter[str] = Counter()
    lines: list[str] = []
    for trajectory in trajectories:
        for run in _runs(trajectory):
            made = run.records()
            if isinstance(made, str):
                left_out[made] += 1
                continue
            lines += [json.dumps(each.entry()) for each in made]
    if not lines:
        why = ", ".join(f"{many} {reason}" for reason, many in left_out.items()) or "it has none"
        raise UsageError(f"the trajectories hold no session that can be replayed: {why}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return left_out


@dataclass(slots=True)
class _Run:
    """A part of a branch that waits for tools alone."""

    name: str
    before: int
    """How many tokens stand before it."""
    parts: list[Segment] = field(default_factory=list)

    def records(self) -> Sequence[Record] | str:
        """Return the records of a session, or why there are none."""
        turns = [each for each in self.parts if each.source == "sampled"]
        if not turns:
            return UNSAMPLED
        arrival, made = turns[0].started_at, list[Record]()
        given, decoded, calls, at = self.before, 0, 0, arrival
        for part in self.parts:
            if part.source == "sampled":
                decoded += len(part.tokens)
                began = part.started_at
                at = began if began is None else began + (part.seconds or 0.0)
                continue
            if decoded:  # the results of calls, which another turn follows
                if part.seconds is None or at is None:
                    return UNTIMED
                made.append(
                    PauseRecord(
                        request=self.name,
                        session=self.name,
                        at=at,
                        arrival=arrival,
                        given_tokens=given,
                        decoded_tokens=decoded,
                        pause_seconds=part.seconds,
                        outcome="resumed",
                    )
                )
                given, decoded, calls = 0, 0, calls + 1
            given += len(part.tokens)
        if arrival is None or at is None:
            return UNTIMED
        last = SessionRecord(self.name, at, self.name, arrival, given, decoded, calls)
        return [*made, last]


def _runs(trajectory: Trajectory) -> Iterator[_Run]:
    """Yield the parts of the branches that a session made."""
    for branch in trajectory.branches:
        if branch.session != trajectory.session:
            continue
        at, run, count = branch.branch_point, _Run(f"{branch.id}.0", branch.branch_point), 0
        for part in branch.segments:
            has_turns = bool(run.parts) and run.parts[-1].source == "sampled"
            if has_turns and part.source not in ("sampled", "tool"):
                yield run
                count += 1
                run = _Run(f"{branch.id}.{count}", at)
            run.parts.append(part)
            at += len(part.tokens)
        while run.parts and run.parts[-1].source != "sampled":
            run.parts.pop()  # nothing has followed it
        yield run
