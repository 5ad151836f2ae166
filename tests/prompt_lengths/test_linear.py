"""The linear model, its training, and the directory of a predictor."""

import json
from pathlib import Path

import numpy as np
import pytest

from caesura.scheduler.prompt_lengths.learner import (
    BUCKETS,
    WEIGHTS_FILE,
    features_of,
    word_ids,
)
from caesura.scheduler.prompt_lengths.objectives import OBJECTIVES
from caesura.scheduler.prompt_lengths.predictor import (
    DESCRIPTION_FILE,
    PredictorError,
    load_predictor,
    split_of,
)
from caesura.scheduler.prompt_lengths.training import REPORT, Plan, split
from tests.prompt_lengths.prompts import WORDS, told, trained


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_words_that_matter_are_learned(objective: str) -> None:
    predictor = trained(objective, told())
    expected = predictor.predict([f"please write a {word} about cats" for word in WORDS]).means
    brief, story, listed = (float(tokens) for tokens in expected)
    assert brief < listed < story
    assert predictor.description.scores["pairs"] > 0.8
    assert predictor.description.data["parts"] == {"train": 195, "choose": 45, "report": 60}


def test_a_predictor_survives_its_directory(tmp_path: Path) -> None:
    predictor = trained("bins", told())
    predictor.save(tmp_path / "p")
    again = load_predictor(tmp_path / "p")
    prompts = ["a story", "", "list " * 5000]
    assert (again.predict(prompts).quantiles == predictor.predict(prompts).quantiles).all()
    assert again.description.scores == predictor.description.scores
    assert "please" not in (tmp_path / "p" / DESCRIPTION_FILE).read_text()
    assert b"please" not in (tmp_path / "p" / WEIGHTS_FILE).read_bytes()


def test_training_data_are_recognised() -> None:
    rows = told()
    predictor = trained("l1", rows)
    which, used = split_of(rows, predictor.description)
    assert used == split(rows, 0)[REPORT] and "report part" in which
    other = told(50, seed=9)
    assert split_of(other, predictor.description)[1] == other


def test_training_again_gives_the_same() -> None:
    rows, prompts = told(100), ["a story", "be brief"]
    first, second = trained("margin", rows), trained("margin", rows)
    assert (first.predict(prompts).tokens == second.predict(prompts).tokens).all()


def test_a_directory_without_a_predictor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PredictorError, match=r"holds no predictor\.json"):
        load_predictor(tmp_path)
    trained("l1", told(100)).save(tmp_path)
    file = tmp_path / DESCRIPTION_FILE
    good = json.loads(file.read_text())
    for change in ({"format": 7}, {"width": 0}, {"spread": {}}, {"objective": "x"}, {"edges": 3}):
        file.write_text(json.dumps(good | change))
        with pytest.raises(PredictorError, match="no description"):
            load_predictor(tmp_path)
    for change in ({"kind": "oracle"}, {}):
        file.write_text(json.dumps(good | change))
        if not change:
            (tmp_path / WEIGHTS_FILE).write_bytes(b"not tensors at all")
        with pytest.raises(PredictorError, match="train it again"):
            load_predictor(tmp_path)


def test_features_are_bounded_hashes() -> None:
    buckets, values = features_of("word " * 100_000 + "\0\ud800é")
    assert len(buckets) == len(values) < 2100 and buckets.max() < BUCKETS
    assert (np.diff(buckets) > 0).all()
    assert word_ids("", 100, 8) == []
    assert len(word_ids("a b c d", 100, 3)) == 3
    assert word_ids("b c d", 100, 3) == word_ids("a b c d", 100, 3)


def test_a_plan_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"head_epochs": -1}):
        with pytest.raises(ValueError, match="got"):
            Plan(**wrong)  # type: ignore[arg-type]
