"""A trained predictor of lengths: a directory of weights and a description."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from caesura.scheduler.errors import UsageError
from caesura.scheduler.prompt_lengths.learner import Learner, Linear
from caesura.scheduler.prompt_lengths.objectives import (
    OBJECTIVES,
    Lengths,
    Spread,
    class_edges,
    fit_spread,
    make_objective,
    spread_from,
)
from caesura.scheduler.prompt_lengths.scores import Scores, measure
from caesura.scheduler.prompt_lengths.training import (
    CHOOSE,
    REPORT,
    TRAIN,
    Examples,
    Plan,
    Progress,
    Row,
    fingerprint,
    outputs_of,
    split,
    split_rule,
    train,
)

DESCRIPTION_FILE = "predictor.json"
FORMAT = 1
MAX_TIMED = 200
"""The number of prompts over which the time of a single prediction is measured."""


class PredictorError(UsageError, ValueError):
    """A directory holds no predictor, or a broken one; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the file beside the weights says.

    `edges` bound SSJF's five classes of the training part. `data` says what the predictor was
    trained on, and `scores` are those of the report part. No prompt is kept.
    """

    kind: str
    objective: str
    width: int
    seed: int
    edges: tuple[float, ...]
    spread: Spread
    data: Mapping[str, Any]
    scores: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        """Write the description into a folder that exists."""
        wire = {
            "format": FORMAT,
            "kind": self.kind,
            "objective": self.objective,
            "width": self.width,
            "seed": self.seed,
            "edges": list(self.edges),
            "spread": self.spread.to_wire(),
            "data": dict(self.data),
            "scores": dict(self.scores),
        }
        (folder / DESCRIPTION_FILE).write_text(json.dumps(wire, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Description":
        """Return the description in a folder; raises `PredictorError` without a valid one."""
        file = folder / DESCRIPTION_FILE
        try:
            wire = json.loads(file.read_text())
            if wire["format"] != FORMAT:
                raise ValueError(f"the format is {wire['format']!r}, and {FORMAT} can be read")
            if wire["objective"] not in OBJECTIVES or not 1 <= int(wire["width"]) <= 1000:
                raise ValueError(f"objective {wire['objective']!r} of width {wire['width']!r}")
            return cls(
                kind=str(wire["kind"]),
                objective=wire["objective"],
                width=int(wire["width"]),
                seed=int(wire["seed"]),
                edges=tuple(map(float, wire["edges"])),
                spread=spread_from(wire["spread"], int(wire["width"])),
                data=dict(wire["data"]),
                scores=dict(wire["scores"]),
            )
        except FileNotFoundError as error:
            raise PredictorError(
                f"{folder} holds no {DESCRIPTION_FILE}: make a predictor with"
                " `caesura predict train DATA --out DIR`, and give its directory"
            ) from error
        except (
            *(OSError, ValueError, KeyError, TypeError, AttributeError),
            *(OverflowError, RecursionError),
        ) as error:
            raise PredictorError(
                f"{file} is no description of a predictor ({error!r:.200}): train it again"
            ) from error


class LengthPredictor:
    """A model with the map from its outputs to lengths."""

    def __init__(self, learner: Learner, description: Description) -> None:
        self._learner = learner
        self.description = description

    def predict(self, prompts: Sequence[str]) -> Lengths:
        """Return the predicted lengths of prompts, as one batch or a few."""
        inputs = [self._learner.prepare(prompt) for prompt in prompts]
        return self.description.spread.lengths(outputs_of(self._learner, inputs))

    def evaluate(self, rows: Sequence[Row]) -> Scores:
        """Return the measures over rows, with the time of a prediction for a single prompt."""
        lengths = self.predict([row.prompt for row in rows])
        timed = [row.prompt for row in rows[:: -(-len(rows) // MAX_TIMED)]]
        begin = time.perf_counter()
        for prompt in timed:
            self.predict([prompt])
        milliseconds = 1000 * (time.perf_counter() - begin) / len(timed)
        return measure(rows, lengths, self.description.edges, milliseconds)

    def save(self, folder: Path) -> None:
        """Write the predictor into a folder, which is made if it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        self._learner.save(folder)
        self.description.write(folder)


def load_predictor(folder: Path) -> LengthPredictor:
    """Return the predictor in a folder; raises `PredictorError` if there is no valid one."""
    description = Description.read(folder)
    try:
        if description.kind == Linear.kind:
            learner: Learner = Linear.load(folder, description.width)
        elif description.kind == "encoder":
            # It imports torch, which only training and the predictor's own process may do.
            from caesura.scheduler.prompt_lengths.encoder import Encoder

            learner = Encoder.load(folder, description.width)
        else:
            raise ValueError(f"unknown kind {description.kind!r}")
    except ImportError:
        raise
    except Exception as error:  # readers of weights raise errors of their own
        raise PredictorError(
            f"{folder} holds no weights that can be read ({error}): train it again"
        ) from error
    return LengthPredictor(learner, description)


_kept = cache(load_predictor)


def lengths_of(folder: str, prompts: list[str]) -> list[list[float]]:
    """Return the equally likely lengths of every prompt, ascending; loads a predictor once.

    The process of `process.py` runs this. Raises `PredictorError`.
    """
    lengths: list[list[float]] = _kept(Path(folder)).predict(prompts).quantiles.round(1).tolist()
    return lengths


def split_of(rows: Sequence[Row], description: Description) -> tuple[str, list[Row]]:
    """Return the rows on which a predictor may be measured, and which they are.

    Of the data that it was trained on, this is the report part; of any other data, all.
    """
    if fingerprint(rows) == description.data.get("fingerprint"):
        return f"{REPORT} part of the training data", split(rows, description.seed)[REPORT]
    return "all rows, none of them trained on", list(rows)


def width_of(objective: str, rows: Sequence[Row]) -> int:
    """Return the number of outputs that a model needs for an objective."""
    return make_objective(objective, _tokens(rows)).width


def train_predictor(
    learner: Learner,
    objective_name: str,
    rows: Sequence[Row],
    plan: Plan,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> LengthPredictor:
    """Return a predictor trained on one part of the rows, chosen on another, scored on a third.

    The learner has `width_of` outputs. `about` is added to the description of the data. Raises
    `DataError` for too few rows.
    """
    parts = split(rows, plan.seed)
    trained, chosen = Examples(learner, parts[TRAIN]), Examples(learner, parts[CHOOSE])
    objective = make_objective(objective_name, trained.tokens)
    learner.start(objective.start(trained.tokens))
    epoch = train(learner, objective, trained, chosen, plan, progress)
    spread = fit_spread(objective, trained.tokens, chosen.outputs(learner), chosen.tokens)
    data = {
        **(about or {}),
        "fingerprint": fingerprint(rows),
        "parts": {part: len(of) for part, of in parts.items()},
        "split": split_rule(rows),
        "epoch": epoch,
        "mean_tokens": round(float(trained.tokens.mean()), 1),
    }
    edges = class_edges(trained.tokens)
    description = Description(
        learner.kind, objective_name, objective.width, plan.seed, edges, spread, data, {}
    )
    scores = LengthPredictor(learner, description).evaluate(parts[REPORT])
    return LengthPredictor(learner, replace(description, scores=scores.to_wire()))


def _tokens(rows: Sequence[Row]) -> Any:
    return np.array([tokens for row in rows for tokens in row.samples], dtype=np.float64)
