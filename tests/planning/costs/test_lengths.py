"""Output lengths of a plan's requests: where they come from, and how they are limited."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from caesura.planning.application.requests import Request
from caesura.planning.costs.distributions import Observed, conditioned, observed, weighted
from caesura.planning.costs.lengths import (
    Constant,
    LengthError,
    Lengths,
    Limits,
    Predicted,
    draw_lengths,
    in_order,
    make_lengths,
)
from caesura.simulator.workload.reading import DataError


def request(key: str, prompt: int = 10, most: int = 100, **more: object) -> Request:
    return Request(key, "task", "m", prompt, most, **more)  # type: ignore[arg-type]


def drawn(source: Lengths, requests: list[Request], longest: int = 4096, seed: int = 0):
    return draw_lengths(requests, {"m": source}, {"m": longest}, np.random.default_rng(seed))


def many(count: int, **more: object) -> list[Request]:
    return [request(f"task/{i}", most=10**6, **more) for i in range(count)]


def test_an_output_is_bounded_by_its_limit_and_by_the_context() -> None:
    requests = [request("a", prompt=10, most=50), request("b", prompt=4000, most=500)]
    assert drawn(Constant(200), requests) == {"a": 50, "b": 96}
    assert drawn(Limits(), requests)["a"] == 50
    assert drawn(Constant(5), [request("c", prompt=9000)]) == {"c": 1}


def test_a_prompt_holds_the_outputs_that_it_needs() -> None:
    last = request("b", prompt=10, most=500, needs=("a",))
    lengths = drawn(Constant(60), [last, request("a")], longest=100)
    assert lengths == {"a": 60, "b": 30}


def test_requests_that_need_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="need each other"):
        in_order([request("a", needs=("b",)), request("b", needs=("a",))])
    with pytest.raises(ValueError, match="needs x, which is no request"):
        in_order([request("a", needs=("x",))])


def test_pairs_of_a_file_are_a_distribution(tmp_path: Path) -> None:
    path = tmp_path / "lengths.json"
    path.write_text(json.dumps([[10, 3], [30, 1]]))
    lengths = list(drawn(make_lengths(str(path)), many(2000)).values())
    assert set(lengths) == {10, 30}
    assert lengths.count(10) / 2000 == pytest.approx(0.75, abs=0.03)
    assert drawn(make_lengths(str(path)), many(9), seed=1) == drawn(
        make_lengths(str(path)), many(9), seed=1
    )


def test_lengths_are_conditioned_on_the_task_and_the_prompt(tmp_path: Path) -> None:
    rows = [
        {"tokens": (5 if task == "short" else 50) + (prompt > 500), "task": task,
         "prompt_tokens": prompt}
        for task in ("short", "long")
        for prompt in (100, 1000)
        for _ in range(60)
    ]  # fmt: skip
    path = tmp_path / "lengths.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    source = make_lengths(str(path))
    asked = [Request("a", "short", "m", 90, 1000), Request("b", "long", "m", 2000, 1000)]
    assert drawn(source, asked) == {"a": 5, "b": 51}
    unknown = Request("c", "other", "m", 100, 1000)
    assert drawn(source, [unknown])["c"] in (5, 50)


def test_outputs_that_were_cut_count_as_longer() -> None:
    rows = [Observed(10)] * 5 + [Observed(20, cut=True)] * 4 + [Observed(90)]
    assert observed(rows).mean == pytest.approx(0.5 * 10 + 0.5 * 90)
    assert conditioned([Observed(10)]).otherwise.parts[0].mean == 10


def test_lengths_of_records_count_all_segments(tmp_path: Path) -> None:
    record = {"kind": "session", "at": 9.0, "arrival": 1.0, "calls": 0, "outcome": "stop"}
    path = tmp_path / "records.jsonl"
    lines = [
        {**record, "request": f"r{i}", "given_tokens": 12, "decoded_tokens": 40, "most_tokens": 99}
        for i in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert drawn(make_lengths(f"records:{path}"), [request("a")]) == {"a": 40}


def test_the_papers_distributions_are_there() -> None:
    lengths = drawn(make_lengths("samullm:vicuna-13b-v1.5"), many(4000))
    assert np.mean(list(lengths.values())) == pytest.approx(207, rel=0.08)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("nowhere.jsonl", "unknown lengths 'nowhere.jsonl'"),
        ("tokens:many", "tokens must be a whole number"),
        ("samullm:gpt-5", "choose from: Llama-2-7b-hf"),
        ("predictor:here", "need the texts of the prompts"),
    ],
)
def test_an_unknown_source_is_refused_with_the_choices(spec: str, problem: str) -> None:
    with pytest.raises(LengthError, match=problem):
        make_lengths(spec)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("12\n[3, -1]\n", ":2: a pair must be"),
        ('{"tokens": 0}', ":1: a length must be a number >= 1"),
        ("12\n[3, 1]\n", ":2: pairs .* cannot be mixed"),
        ("", "there is no length"),
        ("[5, 0]", "at least one above 0"),
    ],
)
def test_a_broken_file_names_its_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        make_lengths(str(path))


def test_a_predictor_is_asked_for_each_prompt() -> None:
    class Predictor:
        def predict(self, prompts: list[str]) -> SimpleNamespace:
            rows = np.array([[10.0 * len(prompt)] * 16 for prompt in prompts])
            return SimpleNamespace(quantiles=rows)

    source = Predicted(Predictor(), lambda each: each.key)  # type: ignore[arg-type]
    assert drawn(source, [request("a"), request("bbb")]) == {"a": 10, "bbb": 30}


def test_no_probability_is_negative() -> None:
    with pytest.raises(ValueError, match="probabilities must be >= 0"):
        weighted([(3, -1), (4, 2)])
