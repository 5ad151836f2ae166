"""Trajectories in files: JSON lines, which are read back, and Parquet for data sets.

A line of JSON is one session's trajectory. A row of Parquet is one branch as a trainer takes it.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.trajectory import REWARD, Trajectory

VERSION = 1
_JSON: TypeAdapter[Trajectory] = TypeAdapter(Trajectory)


def to_json(trajectory: Trajectory) -> str:
    """Return a trajectory as JSON in one line."""
    told: dict[str, Any] = _JSON.dump_python(trajectory, mode="json")
    return json.dumps({"version": VERSION, **told})


def from_json(text: str | bytes) -> Trajectory:
    """Return the trajectory that `to_json` wrote. Raises `UsageError` for anything else."""
    version = why = None
    try:
        told = json.loads(text)
        version = told.pop("version", None) if isinstance(told, dict) else None
        if version == VERSION:
            return _JSON.validate_python(told)
    except ValidationError as error:
        wrong = error.errors()[0]
        why = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    except (ValueError, RecursionError) as error:
        why = str(error)
    why = why or f"its version is {version!r}, and {VERSION} can be read"
    raise UsageError(f"{text[:40]!r} is no trajectory of write_jsonl: {why}")


def write_jsonl(path: Path | str, trajectories: Iterable[Trajectory]) -> None:
    """Write trajectories to a file of JSON lines, in place of what it holds.

    Raises `UsageError` for a file that cannot be written.
    """
    try:
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            for each in trajectories:
                file.write(f"{to_json(each)}\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def read_jsonl(path: Path | str) -> list[Trajectory]:
    """Return the trajectories of a file that `write_jsonl` wrote; they equal those written.

    Raises `UsageError`, with the line, for what is no trajectory.
    """
    read: list[Trajectory] = []
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        read.append(from_json(line))
                    except UsageError as error:
                        raise UsageError(f"{path}: line {number}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return read


def write_parquet(path: Path | str, trajectories: Iterable[Trajectory]) -> None:
    """Write the rollouts of trajectories to a Parquet file, one a row, in place of what it holds.

    Its columns are the fields of `Rollout`, then `reward`, and `parent`, `branch_point` and
    `started_at` of the branch. `reward` is null where several rewards have other names. Raises
    `UsageError` without the package `pyarrow`, and for a file that cannot be written.
    """
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"{path}: Parquet files need the package pyarrow, which is not installed: run pip"
            " install pyarrow, or use write_jsonl"
        )
    import pyarrow as arrow
    from pyarrow import parquet

    text, ids, real = arrow.string(), arrow.list_(arrow.int32()), arrow.float64()
    schema = arrow.schema(
        [
            *((name, text) for name in ("session", "branch", "model")),
            *((name, ids) for name in ("prompt_ids", "completion_ids")),
            ("loss_mask", arrow.list_(arrow.int8())),
            ("sources", arrow.list_(arrow.dictionary(arrow.int8(), text))),
            ("logprobs", arrow.list_(arrow.float32())),
            ("weights", arrow.list_(arrow.dictionary(arrow.int32(), text))),
            *(("stop_reason", text), ("rewards", arrow.map_(text, real)), ("reward", real)),
            *(("parent", text), ("branch_point", arrow.int64()), ("started_at", real)),
        ]
    )
    rows = [row for each in trajectories for row in _rows(each)]
    try:
        parquet.write_table(arrow.Table.from_pylist(rows, schema), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error}") from None


def _rows(trajectory: Trajectory) -> Iterable[dict[str, Any]]:
    counts = REWARD in trajectory.rewards or len(trajectory.rewards) == 1
    reward = trajectory.reward if counts else None
    for each in trajectory.rollouts():
        branch = trajectory.branch(each.branch)
        begun = [part.started_at for part in branch.segments if part.started_at is not None]
        yield {
            **asdict(each),
            "rewards": [*each.rewards.items()],
            "reward": reward,
            "parent": branch.parent,
            "branch_point": branch.branch_point,
            "started_at": min(begun, default=None),
        }
