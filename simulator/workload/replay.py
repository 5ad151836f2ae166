"""Recorded sessions of agents, cut into runs and drawn at random with repetition.

There are two forms of JSON lines, both with one session or run per line:

- `{"turns": [[context, decoded, seconds], ...]}`, as in benchmarks/data/agent_runs.jsonl.gz;
- `{"turns": [{"ctx", "out", "pause_s", "pause_kind", "tools"}, ...]}`: tokens of context and of
  output of every call of the model, seconds until the next one, and whether a `tool`, a `human`
  or both (`mixed`) were waited for.

The arrivals of the sessions and their shared prefixes are unknown; here they share nothing. A run
ends where the agent compacted its context, since the next context does not begin with the last.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import Shape, reshaped
from caesura.simulator.workload.reading import DataError, count_of, json_lines, number_of

KIND = "agent"
USER = "user"
"""The tool of a turn that waited for a person."""

MIN_TURNS = 2


@dataclass(frozen=True, slots=True)
class _Turn:
    """One call of the model; `tool` is empty at the session's end, or if it is unknown."""

    context: int
    decoded: int
    tool: str
    seconds: float


class Replay:
    """Draws recorded runs, with repetition."""

    def __init__(self, runs: Sequence[Sequence[Segment]], shape: Shape) -> None:
        """Raise `ValueError` if no run begins within the context."""
        scaled = (reshaped(run, shape) for run in runs)
        self._runs = [run for run in scaled if run]
        if not self._runs:
            raise ValueError(f"no run begins within {shape.context} tokens: raise context=")

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next run."""
        return KIND, rng.choice(self._runs)


def read_runs(path: Path, people: bool = False) -> list[list[Segment]]:
    """Return the runs of a file with at least two turns.

    Sessions are cut where they waited for a person, so that a run waits only for tools. With
    `people` they continue there, and the person is the tool `user`. A run ends before a turn
    without input or output, which is no call. Raises `DataError` for a broken file, or for one
    without runs.
    """
    runs = []
    for line, record in json_lines(path):
        turns = record.get("turns")
        if not isinstance(turns, list) or not turns:
            raise DataError(
                path, line, f"turns must be a list that is not empty, got {turns!r:.60}"
            )
        read = [_turn(turn, path, line) for turn in turns]
        runs += [_segments(run) for run in _cut(read, people) if len(run) >= MIN_TURNS]
    if not runs:
        raise DataError(path, 0, f"no run of {MIN_TURNS} turns or more")
    return runs


def _turn(turn: Any, path: Path, line: int) -> _Turn:
    if isinstance(turn, list) and len(turn) == 3:
        turn = dict(zip(("ctx", "out", "pause_s"), turn, strict=True), pause_kind="tool")
    if not isinstance(turn, dict):
        raise DataError(
            path, line, f"a turn must be [context, decoded, seconds] or an object, got {turn!r:.60}"
        )
    kind = turn.get("pause_kind")
    if kind not in ("tool", "human", "mixed", None):
        raise DataError(
            path, line, f"unknown pause_kind {kind!r}; choose from: tool, human, mixed, null"
        )
    return _Turn(
        count_of(turn, "ctx", path, line),
        count_of(turn, "out", path, line),
        "" if kind is None else (_name(turn.get("tools")) if kind == "tool" else USER),
        0.0 if kind is None else number_of(turn, "pause_s", path, line),
    )


def _name(tools: Any) -> str:
    """Return the name of the first called tool, or `KIND` if no names were recorded."""
    if isinstance(tools, list) and tools and isinstance(tools[0], dict):
        return str(tools[0].get("name") or KIND)
    return KIND


def _cut(turns: list[_Turn], people: bool) -> Iterator[list[_Turn]]:
    """Yield the runs of a session, in each of which the context only grows."""
    run: list[_Turn] = []
    for turn in turns:
        called = turn.context > 0 and turn.decoded > 0
        if run and (not called or turn.context <= run[-1].context + run[-1].decoded):
            yield run
            run = []
        if not called:
            continue
        run.append(turn)
        if not turn.tool or (turn.tool == USER and not people):
            yield run
            run = []
    if run:
        yield run


def _segments(run: list[_Turn]) -> list[Segment]:
    given = [run[0].context]
    given += [after.context - before.context - before.decoded for before, after in pairwise(run)]
    segments = [
        Segment(tokens, turn.decoded, turn.tool, turn.seconds)
        for tokens, turn in zip(given, run, strict=True)
    ]
    return [*segments[:-1], Segment(given[-1], run[-1].decoded)]
