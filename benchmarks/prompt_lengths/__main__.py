"""Predictors of output lengths from prompts, on published prompts and outputs.

    python -m benchmarks.prompt_lengths [--data FOLDER] [--sets NAME...] [--models NAME...]

FOLDER holds the folders of the data sets; those that are missing are left out. Every predictor is
trained on the first 65 % of a set's sessions or prompts, chosen and calibrated on the next 15 %,
and measured on the last 20 %; in order of time where a set has times. `linear` uses --most rows.
The
small encoder starts from random weights and uses --few rows, and `linear-few` is the linear model
on the same rows. Runs are kept in .cache/prompt_lengths, and an interrupted series goes on there.
The tables are markdown.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.prompt_lengths.readers import SETS, prompt_sizes, rows_of
from caesura.scheduler.prompt_lengths.learner import Linear
from caesura.scheduler.prompt_lengths.objectives import OBJECTIVES
from caesura.scheduler.prompt_lengths.predictor import train_predictor, width_of
from caesura.scheduler.prompt_lengths.scores import explainable, order
from caesura.scheduler.prompt_lengths.training import REPORT, TRAIN, Plan, Row, split, split_rule

CACHE = Path(".cache/prompt_lengths")
DATA = Path(".cache/data")
MODELS = ("linear", "linear-few", "encoder")
CODE = 1
"""Raised when kept runs no longer hold."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One training: a data set, a model, an objective, the most rows and a seed."""

    data: str
    model: str
    objective: str
    most: int
    seed: int

    @property
    def file(self) -> Path:
        name = f"{CODE}-{self.data}-{self.model}-{self.objective}-{self.most}-{self.seed}"
        return CACHE / f"{name}.json"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prompt_lengths",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, default=DATA, metavar="FOLDER", help="default %(default)s")
    add("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    add("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES), metavar="NAME")
    add("--encoder-objectives", nargs="+", choices=OBJECTIVES, default=["l1", "bins", "listmle"])
    add("--most", type=int, default=8000, help="rows of a set for the linear model")
    add("--few", type=int, default=2500, help="rows of a set for the small encoder")
    add("--seed", type=int, default=0)
    add("--kept", action="store_true", help="train nothing, and print the runs that are kept")
    add_option(parser)
    return parser.parse_args()


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most about `most` rows: whole sessions or prompts, spread evenly over the set."""
    groups = list(dict.fromkeys(row.group for row in rows))
    kept = max(10, len(groups) * most // len(rows))
    if kept >= len(groups):
        return list(rows)
    picked = {groups[index] for index in np.linspace(0, len(groups) - 1, kept).round().astype(int)}
    return [row for row in rows if row.group in picked]


def run(cell: Cell, rows: Sequence[Row], progress: Any = None) -> dict[str, Any]:
    """Train, measure and keep a cell; return its scores."""
    if cell.file.exists():
        return dict(json.loads(cell.file.read_text()))
    rows = thinned(rows, cell.most)
    width = width_of(cell.objective, rows)
    if cell.model == "encoder":
        import torch

        from caesura.scheduler.prompt_lengths.encoder import Encoder

        torch.set_num_threads(1)
        learner: Any = Encoder.small(width, seed=cell.seed)
        plan = Plan(epochs=5, rate=1e-3, seed=cell.seed)
    else:
        learner, plan = Linear(width), Plan(epochs=8, rate=0.1, seed=cell.seed)
    predictor = train_predictor(learner, cell.objective, rows, plan, progress=progress)
    scores = {**predictor.description.scores, "rows": len(rows)}
    CACHE.mkdir(parents=True, exist_ok=True)
    cell.file.write_text(json.dumps(scores))
    return scores


def sets_table(loaded: dict[str, list[Row]], seed: int) -> Table:
    """Return what the sets hold, and what can be known without a model."""
    columns = ["set", "an output", "rows", "mean", "parts", "L1 of the median"]
    columns += ["order by prompt's size", "between prompts"]
    found = []
    for name, rows in loaded.items():
        parts = split(rows, seed)
        trained = [tokens for row in parts[TRAIN] for tokens in row.samples]
        report = [(row, tokens) for row in parts[REPORT] for tokens in row.samples]
        truth = np.array([tokens for _, tokens in report], dtype=np.float64)
        sizes = np.array([len(row.prompt) for row, _ in report], dtype=np.float64)
        by_prompt = explainable(rows)
        cells = (
            name,
            f"{SETS[name].output}, {SETS[name].unit}",
            f"{len(rows):,}",
            f"{np.mean(trained):.0f}",
            split_rule(rows),
            f"{np.abs(truth - np.median(trained)).mean():.1f}",
            f"{order(sizes, truth)[1]:.3f}",
            "-" if by_prompt is None else f"{by_prompt:.2f}",
        )
        found.append(cells)
    return Table.of(columns, found, key="sets")


def scores_table(cells: dict[Cell, dict[str, Any]]) -> Table:
    """Return the scores of the report parts."""
    columns = ["set", "model", "objective", "L1", "R2", "acc.", "F1", "within 5", "within 15"]
    columns += ["tau", "pairs", "in 50 %", "in 80 %"]
    names = ("accuracy", "f1", "within_5", "within_15", "tau", "pairs", "covered_50", "covered_80")
    found = []
    for cell, scores in cells.items():
        row = [cell.data, cell.model, cell.objective, f"{scores['l1']:.1f}", f"{scores['r2']:.2f}"]
        found.append([*row, *(f"{scores[name]:.3f}" for name in names)])
    return Table.of(columns, found, key="scores")


def wanted(given: argparse.Namespace, loaded: dict[str, list[Row]]) -> Iterator[Cell]:
    """Yield the cells of a series, the quick ones first."""
    for model in given.models:
        for data in loaded:
            if model == "linear-few" and len(loaded[data]) <= given.few:
                continue  # the same as `linear`
            most = given.most if model == "linear" else given.few
            for objective in given.objectives if model == "linear" else given.encoder_objectives:
                yield Cell(data, model, objective, most, given.seed)


def main() -> None:
    """Run the series, and print its tables."""
    given = parse()
    found = [name for name in given.sets if (given.data / SETS[name].folder).is_dir()]
    if not found:
        raise SystemExit(f"{given.data} holds none of the folders of {', '.join(given.sets)}")
    loaded = {name: rows_of(name, given.data) for name in found}
    done: dict[Cell, dict[str, Any]] = {}
    cells = [cell for cell in wanted(given, loaded) if cell.file.exists() or not given.kept]
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=len(cells))
            for cell in cells:
                bar.update(task, description=f"{cell.data}, {cell.model}, {cell.objective}")
                done[cell] = run(cell, loaded[cell.data])
                bar.advance(task)
    except KeyboardInterrupt:
        print("interrupted: these runs are complete; the same command goes on\n")
        given.tables = None
    ordered = dict(sorted(done.items(), key=lambda item: found.index(item[0].data)))
    tables = [sets_table(loaded, given.seed), scores_table(ordered)]
    for table in tables:
        print(f"{table.markdown()}\n")
    for cell, scores in ordered.items():
        print(
            f"{cell.data}, {cell.model}, {cell.objective}: {scores['milliseconds']:.1f} ms a prompt"
        )
    sizes = prompt_sizes(given.data)
    if sizes is not None:
        given_tokens, truth = (np.array(column, dtype=np.float64) for column in sizes)
        tau, pairs = order(given_tokens, truth)
        print(f"\nShareGPT-o1, by the prompt's tokens alone: tau {tau:.3f}, pairs {pairs:.3f}")
    tell(given.tables, tables)


if __name__ == "__main__":
    main()
