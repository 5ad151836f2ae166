"""The implementation of `caesura predict`: predictors of output lengths, trained and measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from caesura.runtime.errors import UsageError
from caesura.scheduler.prompt_lengths.learner import Learner, Linear
from caesura.scheduler.prompt_lengths.predictor import (
    DESCRIPTION_FILE,
    load_predictor,
    split_of,
    train_predictor,
    width_of,
)
from caesura.scheduler.prompt_lengths.training import REPORT, Plan, read_rows

SAID = {
    "outputs": "outputs",
    "l1": "L1 (mean absolute error), tokens",
    "r2": "R2 of the expectation",
    "bound": "... of at most (variance between prompts)",
    "accuracy": "accuracy, five classes",
    "f1": "F1 (macro), five classes",
    "within_5": "share within 5 tokens",
    "within_15": "share within 15 tokens",
    "tau": "Kendall's tau-b",
    "pairs": "pair accuracy",
    "covered_50": "lengths within the 50 % interval",
    "covered_80": "lengths within the 80 % interval",
    "milliseconds": "ms a prompt, one at a time",
}
"""The measures in the order of the table."""


def evaluate_and_print(folder: Path, data: Path, as_json: bool) -> None:
    """Measure a predictor and print the measures; raises `UsageError`."""
    try:
        predictor = load_predictor(folder)
    except ImportError as error:
        raise UsageError(
            f"{folder} holds an encoder, which needs torch and transformers ({error}): install"
            " Caesura with vLLM"
        ) from error
    which, rows = split_of(read_rows(data), predictor.description)
    scores = predictor.evaluate(rows).to_wire()
    if as_json:
        print(json.dumps({"rows": which, **scores}))
    else:
        Console().print(table_of(scores, f"{data}: {which}"))


def table_of(scores: Mapping[str, Any], title: str) -> Table:
    """Return a table of measures; those that are None are left out."""
    table = Table(title=title, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, said in SAID.items():
        value = scores.get(name)
        if value is not None:
            table.add_row(said, f"{value:.3f}" if isinstance(value, float) else f"{value}")
    return table


RATES = {"linear": 0.1, "small": 1e-3, "model": 3e-5}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The model to train: a directory's, a small encoder, or neither for the linear one."""

    model: Path | None
    small: bool
    objective: str
    pool: str | None

    def learner(self, width: int, seed: int) -> Learner:
        """Return the untrained model; raises `UsageError` if it cannot be loaded."""
        if self.model is None and not self.small:
            return Linear(width)
        try:
            from caesura.scheduler.prompt_lengths.encoder import Encoder
        except ImportError as error:
            raise UsageError(
                f"an encoder needs torch and transformers ({error}): install Caesura with vLLM,"
                " or train with --linear"
            ) from error
        if self.model is None:
            return Encoder.small(width, seed=seed)
        layers = 1 if self.objective == "bins" else 2  # LAMPS' head is linear, SSJF's has two
        try:
            return Encoder.of(self.model, width, layers, self.pool, seed)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--model {self.model} cannot be loaded ({error}): give a directory that"
                " transformers' AutoModel and AutoTokenizer can read"
            ) from error


@dataclass(frozen=True, slots=True)
class Steps:
    """How to train; without a `rate` it depends on the model."""

    epochs: int
    head_epochs: int
    batch: int
    rate: float | None
    seed: int

    def plan(self, wanted: Wanted) -> Plan:
        """Return the plan; raises `UsageError` for a wrong rate."""
        kind = "model" if wanted.model is not None else "small" if wanted.small else "linear"
        rate = RATES[kind] if self.rate is None else self.rate
        try:
            return Plan(self.epochs, self.head_epochs, self.batch, rate, seed=self.seed)
        except ValueError as error:
            raise UsageError(f"these options do not fit: {error}") from error


def train_and_save(data: Path, out: Path, wanted: Wanted, steps: Steps) -> None:
    """Train a predictor with a progress bar, and write it; raises `UsageError`."""
    _check(out)
    plan, rows, console = steps.plan(wanted), read_rows(data), Console(stderr=True)
    learner = wanted.learner(width_of(wanted.objective, rows), steps.seed)
    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", loss="reading prompts", total=None)

        def moved(step: int, total: int, loss: float, best: float) -> None:
            text = f"loss {loss:.4g}, best on the choose part {best:.4g}"
            bar.update(task, completed=step, total=total, loss=text)

        predictor = train_predictor(learner, wanted.objective, rows, plan, progress=moved)
    predictor.save(out)
    data_of = predictor.description.data
    parts = ", ".join(f"{count} {part}" for part, count in data_of["parts"].items())
    console.print(f"parts {data_of['split']}: {parts}; best epoch {data_of['epoch']}")
    Console().print(table_of(predictor.description.scores, f"{REPORT} part of {data}"))
    console.print(
        f"written to {out}; use it with `caesura serve --length-predictor {out}`", soft_wrap=True
    )


def _check(out: Path) -> None:
    """Raise `UsageError` if a directory holds something other than a predictor."""
    if out.is_dir() and any(out.iterdir()) and not (out / DESCRIPTION_FILE).exists():
        raise UsageError(f"--out {out} holds other files: choose a new directory")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: choose a directory")
