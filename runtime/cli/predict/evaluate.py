"""`caesura predict evaluate`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from caesura.runtime.errors import UsageError
from caesura.scheduler.prompt_lengths.predictor import load_predictor, split_of
from caesura.scheduler.prompt_lengths.training import read_rows

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
