"""Training a model of lengths: the data set with its parts, and epochs over the training part.

The choose part decides which epoch was the best.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TextIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.errors import UsageError
from caesura.scheduler.prompt_lengths.learner import Learner
from caesura.scheduler.prompt_lengths.objectives import Array, Objective

TRAIN, CHOOSE, REPORT = "train", "choose", "report"
PARTS = (TRAIN, CHOOSE, REPORT)
"""The parts of a data set, in the order of time."""

CHOOSE_SHARE = 0.15
REPORT_SHARE = 0.2
MAX_TOKENS = 2**31 - 1


class DataError(UsageError, ValueError):
    """A file of prompts is missing or broken; the message names the line and the value."""


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and the tokens of one or several outputs for it.

    Rows of the same `session` never fall into different parts. Without a session, rows of the same
    prompt do not. `time` is in seconds from any zero.
    """

    prompt: str
    samples: tuple[int, ...]
    session: str = ""
    time: float | None = None

    @property
    def group(self) -> str:
        """Return what may not be divided between parts."""
        return self.session or self.prompt


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines, which may be compressed by gzip.

    A line is an object with `prompt`, and with `tokens` (one output) or `samples` (a list). It may
    have `session` and `time`. Raises `DataError` for any other line, and for a file without lines.
    """
    try:
        with _open(path) as lines:
            rows = [_row(path, number, line) for number, line in _numbered(lines)]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as JSON lines: {error}") from error
    if not rows:
        raise DataError(
            f'{path} holds no rows: write lines such as {{"prompt": "...", "tokens": 9}}'
        )
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines that `read_rows` reads; a name in `.gz` is compressed."""
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as out:
        for row in rows:
            data: dict[str, Any] = {"prompt": row.prompt, "samples": list(row.samples)}
            data |= {"session": row.session} if row.session else {}
            data |= {"time": row.time} if row.time is not None else {}
            out.write(json.dumps(data) + "\n")


def fingerprint(rows: Sequence[Row]) -> str:
    """Return a hash of the rows, by which an evaluation recognises the data of a training."""
    digest = blake2b(digest_size=16)
    for row in rows:
        digest.update(repr((row.prompt, row.samples, row.session, row.time)).encode())
    return digest.hexdigest()


def split(rows: Sequence[Row], seed: int) -> dict[str, list[Row]]:
    """Return the rows by part: the first 65 % of the groups train, 15 % choose, 20 % report.

    Groups are ordered by their first time if all rows have one, and else by a hash of the group
    and the seed. Raises `DataError` if a part would be empty.
    """
    first: dict[str, float] = {}
    timed = all(row.time is not None for row in rows)
    for row in rows:
        order = float(row.time or 0) if timed else float(crc32(f"{seed}\n{row.group}".encode()))
        first[row.group] = min(order, first.get(row.group, order))
    groups = sorted(first, key=lambda group: (first[group], group))
    report = round(len(groups) * (1 - REPORT_SHARE))
    choose = round(len(groups) * (1 - REPORT_SHARE - CHOOSE_SHARE))
    part_of = {
        group: TRAIN if index < choose else CHOOSE if index < report else REPORT
        for index, group in enumerate(groups)
    }
    parts: dict[str, list[Row]] = {part: [] for part in PARTS}
    for row in rows:
        parts[part_of[row.group]].append(row)
    if not all(parts.values()):
        raise DataError(
            f"{len(groups)} sessions or prompts are too few for the parts {', '.join(PARTS)}:"
            " give at least 10"
        )
    return parts


def split_rule(rows: Sequence[Row]) -> str:
    """Return how `split` divides these rows, in words."""
    what = "session" if any(row.session for row in rows) else "prompt"
    how = "in order of time" if all(row.time is not None for row in rows) else "at random"
    return f"by {what}, {how}"


def _open(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open()


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _row(path: Path, number: int, line: str) -> Row:
    def wrong(what: str) -> DataError:
        return DataError(f"{path}, line {number}: {what}, got {line.strip()!r:.120}")

    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise wrong(f"a line must be JSON ({error})") from error
    if not isinstance(data, dict) or not isinstance(data.get("prompt"), str):
        raise wrong("a line must be an object with a text `prompt`")
    samples = data.get("samples", [data["tokens"]] if "tokens" in data else [])
    if not isinstance(samples, list) or not samples or not all(map(_is_count, samples)):
        raise wrong("`tokens` must be a whole number >= 0, or `samples` a list of them")
    time, session = data.get("time"), data.get("session", "")
    if isinstance(time, bool) or not isinstance(time, int | float | None):
        raise wrong("`time` must be a number of seconds")
    if not isinstance(session, str):
        raise wrong("`session` must be a text")
    return Row(data["prompt"], tuple(samples), session, time)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS


BATCH_FORWARD = 64

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train.

    `epochs` are those of the whole model, and `head_epochs` those of its head alone after them
    (SSJF's two phases). Without a better choose part for `patience` epochs a phase ends. All
    randomness comes from `seed`. Raises `ValueError` for a number that makes no sense.
    """

    epochs: int = 12
    head_epochs: int = 0
    batch: int = 32
    rate: float = 0.05
    patience: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.head_epochs < 0 or not self.rate > 0:
            raise ValueError(
                "head_epochs must be >= 0 and the rate positive, got"
                f" {self.head_epochs!r} and {self.rate!r}"
            )


Progress = Callable[[int, int, float, float], None]
"""Is told the step, the number of steps, the training loss and the best choose loss."""


class Examples:
    """Prepared prompts of a part, one entry for every output."""

    def __init__(self, learner: Learner, rows: Sequence[Row]) -> None:
        self.inputs: list[Any] = []
        tokens: list[int] = []
        for row in rows:
            prepared = learner.prepare(row.prompt)
            self.inputs.extend([prepared] * len(row.samples))
            tokens.extend(row.samples)
        self.tokens: Array = np.array(tokens, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.inputs)

    def outputs(self, learner: Learner) -> Array:
        """Return the model's outputs (n, width)."""
        return outputs_of(learner, self.inputs)


def outputs_of(learner: Learner, inputs: Sequence[Any]) -> Array:
    """Return the outputs of prepared prompts, in batches."""
    batches = range(0, len(inputs), BATCH_FORWARD)
    return np.concatenate([learner.outputs(inputs[at : at + BATCH_FORWARD]) for at in batches])


def train(
    learner: Learner,
    objective: Objective,
    trained: Examples,
    chosen: Examples,
    plan: Plan,
    progress: Progress | None = None,
) -> int:
    """Train a model, leave it with the weights of the best epoch, and return that epoch's number.

    The best epoch has the least loss on the choose part.
    """
    random = np.random.default_rng(plan.seed)
    best, best_loss, kept = 0, _loss(learner, objective, chosen), learner.state()
    steps = -(-len(trained) // plan.batch)
    total = steps * (plan.epochs + plan.head_epochs)
    epoch = 0
    for phase, epochs in enumerate((plan.epochs, plan.head_epochs)):
        if phase == 1 and epochs:
            learner.restore(kept)
            learner.freeze()
        first = epoch
        for epoch in range(first + 1, first + epochs + 1):
            shuffled = random.permutation(len(trained))
            for step in range(steps):
                at = shuffled[step * plan.batch : (step + 1) * plan.batch]
                rate = plan.rate * (1 - ((epoch - 1) * steps + step) / total)
                lost = _step(learner, objective, trained, at, rate)
                if progress is not None:
                    progress((epoch - 1) * steps + step + 1, total, lost, best_loss)
            if (loss := _loss(learner, objective, chosen)) < best_loss:
                best, best_loss, kept = epoch, loss, learner.state()
            elif epoch - max(best, first) >= plan.patience:
                break
    learner.restore(kept)
    return best


def _step(
    learner: Learner, objective: Objective, trained: Examples, at: Indices, rate: float
) -> float:
    tokens = trained.tokens[at]
    inputs = [trained.inputs[index] for index in at]
    return learner.learn(inputs, lambda outputs: objective.loss(outputs, tokens), rate)


def _loss(learner: Learner, objective: Objective, examples: Examples) -> float:
    """Return the loss over a part, in lists of `BATCH_FORWARD` for the objectives of ranks."""
    outputs = examples.outputs(learner)
    starts = range(0, len(examples), BATCH_FORWARD)
    losses = [
        objective.loss(outputs[at : at + BATCH_FORWARD], examples.tokens[at : at + BATCH_FORWARD])
        for at in starts
    ]
    weights = [min(BATCH_FORWARD, len(examples) - at) for at in starts]
    return float(np.average([loss for loss, _ in losses], weights=weights))
