"""The measured cost of an engine's steps and copies, and the file that keeps it.

`fit` and `fit_rate` turn measurements into a cost model. A `Calibration` names the model and the
device that it was measured on, and refuses any other.
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
APART = 1.25  # step sizes with a smaller ratio count as the same size
KNEE_GAIN = 0.9  # a saturation point counts if it leaves less than this share of the squared error
ROUNDING = 1e-4  # relative errors below this are noise
EFFICIENT = 4.0  # without a saturation point, the tokens of S cost this many times the base


class CalibrationError(UsageError, ValueError):
    """A calibration is missing, broken or of another engine; the message says how to fix it."""


def fit(samples: Iterable[Step]) -> tuple[CostModel, float]:
    """Return the cost model of measured steps, without a link, and its mean relative error.

    The fit is least squares of the relative error with non-negative terms, for each saturation
    point S that the samples could show. If no S reduces the error, every token costs the same, and
    S is where a step is nearly as efficient as it can be. Raises `ValueError` for fewer than
    `MIN_STEPS` samples, and for samples that cannot be measurements.
    """
    steps = list(samples)
    if len(steps) < MIN_STEPS:
        raise ValueError(f"a fit needs at least {MIN_STEPS} measured steps, got {len(steps)}")
    tokens, context, seconds = (np.array(column, np.float64) for column in zip(*steps, strict=True))
    _demand(bool((tokens >= 1).all()), "a step needs at least 1 token", tokens.min())
    _demand(bool((context >= 0).all()), "a step's context must be >= 0", context.min())
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
    """Return (tokens per second, mean relative error) of copies (tokens, seconds) in one direction.

    The constant cost of a copy does not count towards the rate. Raises `ValueError` for fewer than
    `MIN_COPIES` copies, and for copies that show no rate.
    """
    pairs = list(copies)
    if len(pairs) < MIN_COPIES:
        raise ValueError(f"a rate needs at least {MIN_COPIES} measured copies, got {len(pairs)}")
    tokens, seconds = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    _demand(bool((tokens >= 1).all()), "a copy needs at least 1 token", tokens.min())
    (latency, per_token), _ = _least_squares([np.ones_like(tokens), tokens], seconds)
    _demand(
        bool(per_token > 0),
        "larger copies must take longer (measure several sizes); seconds per token",
        per_token,
    )
    error = np.abs((latency + per_token * tokens) / seconds - 1).mean()
    return float(1 / per_token), float(error)


def _least_squares(columns: list[Array], seconds: Array) -> tuple[Array, float]:
    """Return the non-negative factors of the columns, and their squared relative error.

    There are few columns, so that every set of positive factors can be tried.
    """
    timed = (seconds > 0) & np.isfinite(seconds)
    _demand(bool(timed.all()), "seconds must be positive and finite", seconds[~timed][:1])
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
    """Return the saturation points to try: those with steps of at least two sizes beyond them.

    With one size beyond it, an outlier of that size would look like saturation.
    """
    others = tokens[tokens <= tokens.max() / APART]
    low, high = max(SMALLEST_CHUNK, float(tokens.min())), float(others.max(initial=0.0))
    if low >= high:
        return []
    grid = np.geomspace(low, high, MAX_POINTS)[:-1]
    return [int(point) for point in np.unique(grid.round())]


def _efficient(base: float, per_token: float, most: int) -> int:
    """Return S if every token costs the same: the size that reaches most of the best rate."""
    wanted = EFFICIENT * base / per_token if per_token > 0 else most
    return max(1, min(most, max(SMALLEST_CHUNK, round(wanted))))


def _demand(true: bool, rule: str, value: object) -> None:
    if not true:
        raise ValueError(f"impossible measurement: {rule}, got {value}")


@dataclass(frozen=True, slots=True)
class Calibration:
    """A measured engine: its identity, its cost model, the errors of the fit, and the samples.

    `bytes_per_token` is M. `date` is the day of the measurement. The errors are the mean relative
    errors of `fit` and `fit_rate`; without a link, the link's errors are 0. The link's rates in
    `cost` were measured beside a forward pass. `out_alone` and `in_alone` are its rates in tokens
    per second while the engine is idle; they are informative only.
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
        """Raise `CalibrationError` that names each difference from the measured engine."""
        wanted = {"model": model, "dtype": dtype, "device": device, "vllm_version": vllm_version}
        wrong = [
            f"{name.replace('_version', '')} {getattr(self, name)!r}, not {value!r}"
            for name, value in wanted.items()
            if getattr(self, name) != value
        ]
        if wrong:
            raise CalibrationError(f"the calibration is for {'; '.join(wrong)}: {_fix(model)}")

    def save(self, path: Path) -> None:
        """Write the file; a reader finds the old file or the new one, never a part.

        Raises `OSError`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(asdict(self), indent=1) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Calibration":
        """Return a file's calibration; raises `CalibrationError` if it is missing or broken."""
        try:
            return cls.from_wire(json.loads(path.read_text()))
        except OSError as error:
            problem = f"no calibration at {path} ({error.strerror})"
        except ValueError as error:
            problem = f"{path} is not a calibration ({error})"
        except RecursionError:
            problem = f"{path} is not a calibration (it is nested too deeply)"
        raise CalibrationError(
            f"{problem}: run `caesura calibrate --output {path}`, with the same --model"
        )

    @classmethod
    def from_wire(cls, wire: Any) -> "Calibration":
        """Return the calibration that `save` wrote; raises `ValueError` for any other data."""
        try:
            wire = {"out_alone": 0.0, "in_alone": 0.0, **wire}
            values = {item.name: wire[item.name] for item in fields(cls)}
            for name in ("model", "dtype", "device", "vllm_version", "date"):
                _demand(isinstance(values[name], str), f"{name} must be a text", repr(values[name]))
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


def _fix(model: str) -> str:
    # The calibration keeps only a directory's name, which does not work as --model; an id does.
    named = f" --model {model}" if "/" in model else ""
    return f"run `caesura calibrate{named}` again" + ("" if named else ", with the same --model")
