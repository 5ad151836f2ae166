"""Output lengths of an application's requests: l_out = min(X, limit, l_max - l_in).

X is drawn from the model's distribution (SamuLLM, section 4.1), which a file of lengths or of
records gives. The prompt of a request holds the outputs of the requests that it needs, so that its
l_in depends on what was drawn for those.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from caesura.planning.application.requests import Request
from caesura.planning.costs.distributions import (
    Array,
    Conditioned,
    Empirical,
    Observed,
    alone,
    conditioned,
    weighted,
)
from caesura.scheduler.errors import UsageError
from caesura.scheduler.prompt_lengths.objectives import LEVELS
from caesura.scheduler.prompt_lengths.predictor import LengthPredictor, load_predictor
from caesura.simulator.workload.reading import DataError, lines
from caesura.simulator.workload.records import read_sessions

SAMULLM = Path(__file__).with_name("samullm_lengths.json")


def read_lengths(path: Path) -> Conditioned:
    """Return the distribution in a JSON or JSON-lines file, which may be gzipped.

    The items are lengths in tokens, `[length, probability]` pairs, or objects with `tokens` and if
    known `task`, `prompt_tokens` and `cut`. Raises `DataError` that names file and line.
    """
    pairs: list[tuple[float, float]] = []
    rows: list[Observed] = []
    for line, item in _items(path):
        if isinstance(item, list):
            pairs.append(_pair(path, line, item))
        else:
            rows.append(_row(path, line, item))
        if pairs and rows:
            raise DataError(
                path, line, "pairs of [length, probability] cannot be mixed with single lengths"
            )
    if not pairs and not rows:
        raise DataError(path, 0, "there is no length: give one length in tokens per line")
    try:
        return alone(weighted(pairs)) if pairs else conditioned(rows)
    except ValueError as error:
        raise DataError(path, 0, str(error)) from error


def read_recorded(path: Path) -> Conditioned:
    """Return the lengths of the requests that a served engine recorded (`--records FILE`).

    A request counts with all tokens that it decoded, those of its calls included, and by the length
    of its prompt. One that ended at its `max_tokens` counts as cut. Raises `DataError`.
    """
    rows = []
    for session in read_sessions(path):
        first, last = session.segments[0], session.segments[-1]
        cut = bool(last.most_tokens) and last.decode_tokens >= last.most_tokens
        rows.append(Observed(session.decode_tokens, "", first.given_tokens, cut))
    return conditioned(rows)


@cache
def samullm_lengths() -> dict[str, Empirical]:
    """Return SamuLLM's distributions of output lengths on 10,000 requests of No Robots, by model.

    The file keeps equally likely quantiles of each; `benchmarks/data/make_samullm_lengths.py` makes
    it.
    """
    found = _samullm()["quantiles"]
    return {
        model: Empirical(np.array(rows, np.float64), np.arange(1, len(rows) + 1) / len(rows))
        for model, rows in found.items()
    }


def samullm_longest() -> dict[str, int]:
    """Return the tokens of the longest context of each of these models."""
    return {model: int(tokens) for model, tokens in _samullm()["longest"].items()}


@cache
def _samullm() -> Any:
    return json.loads(SAMULLM.read_text())


def _items(path: Path) -> list[tuple[int, Any]]:
    """Return the items with their lines: those of one JSON list, or one item per line."""
    texts = [(number, text) for number, text in lines(path) if text.strip()]
    if path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]:
        found = _json(path, 1, "".join(text for _, text in texts))
        if not isinstance(found, list):
            raise DataError(path, 1, "the file must hold a JSON list of lengths")
        return [(0, item) for item in found]
    return [(number, _json(path, number, text)) for number, text in texts]


def _json(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(path, line, f"not JSON: {error}") from error


def _pair(path: Path, line: int, item: list[Any]) -> tuple[float, float]:
    if len(item) != 2 or not all(_counts(value) for value in item) or item[0] < 1:
        raise DataError(
            path, line, f"a pair must be [length >= 1, probability >= 0], got {item!r:.80}"
        )
    return float(item[0]), float(item[1])


def _row(path: Path, line: int, item: Any) -> Observed:
    given = item if isinstance(item, dict) else {"tokens": item}
    tokens, prompt = given.get("tokens", 0), given.get("prompt_tokens", 0)
    if not _counts(tokens) or tokens < 1 or not _counts(prompt):
        raise DataError(
            path,
            line,
            "a length must be a number >= 1, or an object with `tokens` and if known `task`,"
            f" `prompt_tokens` and `cut`; got {item!r:.80}",
        )
    return Observed(int(tokens), str(given.get("task", "")), int(prompt), bool(given.get("cut")))


def _counts(value: object) -> bool:
    """Return whether the value is a number >= 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


Texts = Callable[[Request], str]
"""Returns the text of a request's prompt as far as it is known before the run."""

FORMS = "`limit`, `tokens:N`, `samullm:MODEL`, `records:FILE`, `predictor:DIRECTORY` or a file"


class LengthError(UsageError, ValueError):
    """A model's `lengths` name no source of output lengths; the message says how to fix it."""


class Lengths(Protocol):
    """The distribution of X for the requests of one model."""

    def at(self, requests: Sequence[Request], levels: Array) -> Array:
        """Return the tokens (n,) of n requests, unlimited, at `levels` (n,) in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Every request decodes up to its limit: an upper bound."""

    def at(self, requests: Sequence[Request], levels: Array) -> Array:
        """Return the limits (n,)."""
        return np.array([request.max_tokens for request in requests], np.float64)


@dataclass(frozen=True, slots=True)
class Constant:
    """Every request decodes `tokens` tokens."""

    tokens: int

    def at(self, requests: Sequence[Request], levels: Array) -> Array:
        """Return the same length (n,) for all."""
        return np.full(len(requests), float(self.tokens))


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured distribution, conditioned on the task and the prompt's length where known."""

    distribution: Conditioned

    def at(self, requests: Sequence[Request], levels: Array) -> Array:
        """Return the lengths (n,) at `levels` (n,)."""
        prompts = np.array([request.prompt_tokens for request in requests], np.float64)
        return self.distribution.at([request.task for request in requests], prompts, levels)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The distribution that a trained predictor expects for each prompt."""

    predictor: LengthPredictor
    texts: Texts

    def at(self, requests: Sequence[Request], levels: Array) -> Array:
        """Return the lengths (n,), between the predicted quantiles at `levels` (n,)."""
        if not requests:
            return np.empty(0)
        rows = self.predictor.predict([self.texts(request) for request in requests]).quantiles
        return np.array(
            [np.interp(level, LEVELS, row) for level, row in zip(levels, rows, strict=True)]
        )


def make_lengths(spec: str, texts: Texts | None = None) -> Lengths:
    """Return the lengths that `spec` names.

    `limit` (or an empty spec): every output ends at its limit. `tokens:N`: a fixed length.
    `samullm:MODEL`: SamuLLM's measured distribution. `records:FILE`: what `caesura serve --records`
    wrote. `predictor:DIRECTORY`: a predictor of `caesura predict train`, which needs `texts`. Any
    other spec is the path of a file that `read_lengths` reads. Raises `LengthError`, `DataError`
    for a broken file, and `PredictorError` for a broken predictor.
    """
    kind, colon, rest = spec.partition(":")
    if spec in ("", "limit"):
        return Limits()
    if not colon or kind not in ("tokens", "samullm", "records", "predictor"):
        path = Path(spec).expanduser()
        if not path.is_file():
            raise LengthError(f"unknown lengths {spec!r}: give {FORMS} that exists")
        return Measured(read_lengths(path))
    if kind == "tokens":
        if not rest.isdecimal() or not int(rest):
            raise LengthError(f"lengths {spec!r}: tokens must be a whole number >= 1")
        return Constant(int(rest))
    if kind == "samullm":
        known = samullm_lengths()
        if rest not in known:
            raise LengthError(f"no SamuLLM lengths of {rest!r}; choose from: {', '.join(known)}")
        return Measured(alone(known[rest]))
    if kind == "records":
        return Measured(read_recorded(Path(rest).expanduser()))
    if texts is None:
        raise LengthError(f"lengths {spec!r} need the texts of the prompts, which are not known")
    return Predicted(load_predictor(Path(rest).expanduser()), texts)


def draw_lengths(
    requests: Sequence[Request],
    sources: Mapping[str, Lengths],
    longest: Mapping[str, int],
    generator: np.random.Generator,
) -> dict[str, int]:
    """Return the output tokens of every request, by its key.

    `sources` and `longest` are by model: the distribution of X, and l_max, the tokens of the
    longest context. Every output has at least one token. The same seed gives a request the same
    level of its distribution, whatever the sources are. Raises `ValueError` for requests that need
    each other.
    """
    levels = generator.random(len(requests))
    wanted = np.empty(len(requests))
    by_model: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        by_model.setdefault(request.model, []).append(number)
    for model, numbers in by_model.items():
        own = [requests[number] for number in numbers]
        wanted[numbers] = sources[model].at(own, levels[numbers])
    limited = {
        request.key: (request, min(round(float(tokens)), request.max_tokens))
        for request, tokens in zip(requests, wanted, strict=True)
    }
    drawn: dict[str, int] = {}
    for key in in_order(requests):
        request, tokens = limited[key]
        held = longest[request.model] - prompt_of(request, drawn)
        drawn[key] = max(1, min(tokens, held))
    return drawn


def prompt_of(request: Request, outputs: Mapping[str, int]) -> int:
    """Return the tokens of a request's prompt with the outputs of the requests that it needs."""
    return request.prompt_tokens + sum(outputs[key] for key in request.needs)


def in_order(requests: Sequence[Request]) -> list[str]:
    """Return the keys with every request behind those that it needs.

    Requests that are in such an order already keep it. Raises `ValueError` for a need that is no
    request, and for requests that need each other.
    """
    known: dict[str, Request] = {request.key: request for request in requests}
    seen: set[str] = set()
    sorted_already = True
    for request in requests:
        missing = [key for key in request.needs if key not in known]
        if missing:
            raise ValueError(f"request {request.key} needs {missing[0]}, which is no request")
        sorted_already = sorted_already and seen.issuperset(request.needs)
        seen.add(request.key)
    if sorted_already:
        return list(known)
    try:
        graph = {request.key: request.needs for request in requests}
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ValueError(f"requests need each other: {' -> '.join(error.args[1])}") from error
