"""What an engine's steps and copies were measured to cost, and the file that keeps it.

`fit` and `fit_rate` turn measurements into a cost model; a `Calibration` says for which model on
which device it holds, and refuses to be used for another.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.intercept.kv.costs import SMALLEST_CHUNK, CostModel
from caesura.scheduler.errors import UsageError

Step = tuple[int, int, float]
"""A measured step: query tokens, tokens of context that it read, seconds."""

Copy = tuple[str, int, float]
"""A measured copy: `out` or `in`, tokens, seconds."""

Array = NDArray[np.float64]

MIN_STEPS = 8
MIN_COPIES = 2
MAX_POINTS = 48
APART = 1.25  # sizes of steps that differ by less are the same
KNEE_GAIN = 0.9  # a saturation point is seen if it leaves less than this part of the squared error
ROUNDING = 1e-4  # a relative error that needs no explanation
EFFICIENT = 4.0  # without one, S is where the tokens take this many times what the base takes


class CalibrationError(UsageError, ValueError):
    """A calibration that is missing, broken or another engine's; the message says the mend."""


def fit(samples: Iterable[Step]) -> tuple[CostModel, float]:
    """Fit the cost of steps; return the model, without a link, and the mean relative error.

    Least squares of the relative error with no term below zero, for each saturation point S that
    the samples could show. Where none makes a difference, a token costs the same everywhere, and
    S is where a step is about as efficient as it gets. Raises `ValueError` if the samples are too
    few, or no measurements.
    """
    steps = list(samples)
    if len(steps) < MIN_STEPS:
        raise ValueError(f"a fit takes {MIN_STEPS} measured steps, not {len(steps)}")
    tokens, context, seconds = (np.array(column, np.float64) for column in zip(*steps, strict=True))
    _demand(bool((tokens >= 1).all() and (context >= 0).all()), "a step has tokens and a context")
    ones = np.ones_like(tokens)
    terms, flat_error = _least_squares([ones, tokens, context], seconds)
    base, per_token, per_context = (float(term) for term in terms)
    extra, saturation = 0.0, _efficient(base, per_token, int(tokens.max()))
    least = KNEE_GAIN * flat_error - len(steps) * ROUNDING**2
    for point in _saturations(tokens):
        columns = [ones, tokens, context, np.maximum(0.0, tokens - point)]
        terms, error = _least_squares(columns, seconds)
        if error < least and terms[3] > 0:
            least, saturation = error, point
            base, per_token, per_context, extra = (float(term) for term in terms)
    cost = CostModel(base, per_token, per_token + extra, per_context, saturation)
    errors = [abs(cost.step_seconds(t, c) / s - 1) for t, c, s in steps]
    return cost, sum(errors) / len(errors)


def fit_rate(copies: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Fit (tokens, seconds) of copies one way; return tokens per second, mean relative error.

    What a copy costs whatever its size is set apart. Raises `ValueError` if the copies are too few
    or do not tell a rate.
    """
    pairs = list(copies)
    if len(pairs) < MIN_COPIES:
        raise ValueError(f"a rate takes {MIN_COPIES} measured copies, not {len(pairs)}")
    tokens, seconds = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    _demand(bool((tokens >= 1).all()), "a copy has tokens")
    (latency, per_token), _ = _least_squares([np.ones_like(tokens), tokens], seconds)
    _demand(bool(per_token > 0), "larger copies take longer; measure copies of several sizes")
    error = np.abs((latency + per_token * tokens) / seconds - 1).mean()
    return float(1 / per_token), float(error)


def _least_squares(columns: list[Array], seconds: Array) -> tuple[Array, float]:
    """Return the non-negative factors of the columns, and the squared relative error they leave.

    There are so few columns that each set of those above zero is tried.
    """
    _demand(bool(((seconds > 0) & np.isfinite(seconds)).all()), "what is measured takes some time")
    scales = np.array([max(float(np.abs(column / seconds).max()), 1e-300) for column in columns])
    design = np.stack(columns, axis=1) / seconds[:, None] / scales
    best, least = np.zeros(len(columns)), float(len(seconds))
    for size in range(1, len(columns) + 1):
        for chosen in map(list, combinations(range(len(columns)), size)):
            part = design[:, chosen]
            factors = np.linalg.lstsq(part, np.ones(len(seconds)), rcond=None)[0]
            error = float(np.square(part @ factors - 1).sum())
            if error < least and (factors >= 0).all():
                best, least = np.zeros(len(columns)), error
                best[chosen] = factors
    return best / scales, least


def _saturations(tokens: Array) -> list[int]:
    """Return the saturation points to try: those with steps of two sizes beyond them.

    One size alone would take any hiccup of it for saturation.
    """
    others = tokens[tokens <= tokens.max() / APART]
    low, high = max(SMALLEST_CHUNK, float(tokens.min())), float(others.max(initial=0.0))
    if low >= high:
        return []
    grid = np.geomspace(low, high, MAX_POINTS)[:-1]
    return [int(point) for point in np.unique(grid.round())]


def _efficient(base: float, per_token: float, most: int) -> int:
    """Return S where a token costs the same everywhere: most of the best rate is reached there."""
    wanted = EFFICIENT * base / per_token if per_token > 0 else most
    return max(1, min(most, max(SMALLEST_CHUNK, round(wanted))))


def _demand(true: bool, fact: str) -> None:
    if not true:
        raise ValueError(f"measurements that cannot be: {fact}")


@dataclass(frozen=True, slots=True)
class Calibration:
    """A measured engine: which one it is, its cost model, how well that fits, and the samples.

    `bytes_per_token` is M. `date` is the day of the measurement. The errors are mean relative ones
    of `fit` and `fit_rate`; those of the link are zero where there is none. The link's rates in
    `cost` are those beside a forward pass; `out_alone` and `in_alone` are what it carries in
    tokens per second while the engine is idle, and nothing goes by them.
    """

    model: str
    dtype: str
    device: str
    vllm_version: str
    block_size: int
    bytes_per_token: int
    date: str
    cost: CostModel
    step_error: float
    out_error: float
    in_error: float
    steps: tuple[Step, ...]
    copies: tuple[Copy, ...]
    out_alone: float = 0.0
    in_alone: float = 0.0

    def check(self, model: str, dtype: str, device: str, vllm_version: str) -> None:
        """Raise `CalibrationError`, naming each difference, if this is not the engine measured."""
        wanted = {"model": model, "dtype": dtype, "device": device, "vllm_version": vllm_version}
        wrong = [
            f"{name.replace('_version', '')} {getattr(self, name)!r}, not {value!r}"
            for name, value in wanted.items()
            if getattr(self, name) != value
        ]
        if wrong:
            raise CalibrationError(f"the calibration is for {'; '.join(wrong)}: {_mend(model)}")

    def save(self, path: Path) -> None:
        """Write the file; a reader finds the old one or the new one, never a part.

        Raises `OSError`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(asdict(self), indent=1) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Calibration":
        """Read a file; raises `CalibrationError` if there is none or it is broken."""
        try:
            return cls.from_wire(json.loads(path.read_text()))
        except OSError as error:
            problem = f"no calibration at {path} ({error.strerror})"
        except ValueError as error:
            problem = f"{path} is no calibration ({error})"
        raise CalibrationError(
            f"{problem}: run `caesura calibrate --output {path}`, with the same --model"
        )

    @classmethod
    def from_wire(cls, wire: Any) -> "Calibration":
        """Read what `save` writes; raises `ValueError` if it is anything else."""
        try:
            wire = {"out_alone": 0.0, "in_alone": 0.0, **wire}
            values = {item.name: wire[item.name] for item in fields(cls)}
            for name in ("model", "dtype", "device", "vllm_version", "date"):
                _demand(isinstance(values[name], str), f"{name} is a text")
            for name in ("block_size", "bytes_per_token"):
                values[name] = int(values[name])
            for name in ("step_error", "out_error", "in_error", "out_alone", "in_alone"):
                values[name] = float(values[name])
            values["cost"] = CostModel.from_wire(values["cost"])
            values["steps"] = tuple((int(t), int(c), float(s)) for t, c, s in values["steps"])
            values["copies"] = tuple((str(d), int(t), float(s)) for d, t, s in values["copies"])
        except (TypeError, KeyError, OverflowError) as error:
            raise ValueError(repr(error)) from error
        return cls(**values)


def _mend(model: str) -> str:
    # Only an id tells how the model is named on the command line; a directory's name does not.
    named = f" --model {model}" if "/" in model else ""
    return f"run `caesura calibrate{named}` again" + ("" if named else ", with the same --model")
