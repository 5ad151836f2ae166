"""Read output lengths from files: lengths, distributions, and records of a served engine."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from caesura.planning.costs.distributions import (
    Conditioned,
    Empirical,
    Observed,
    alone,
    conditioned,
    weighted,
)
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
