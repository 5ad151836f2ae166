"""SamuLLM's experiments: the drawn applications, the engines, one measured row, and the tables."""

from statistics import mean, median

import pytest

from benchmarks.papers.samullm_plans import measure
from benchmarks.papers.samullm_plans.applications import (
    chain,
    chunk_counts,
    ensemble,
    mixed,
    routing,
)
from benchmarks.papers.samullm_plans.models import SHAPES, engines, load_seconds, model_of
from benchmarks.papers.samullm_plans.rows import EXPERIMENTS, Experiment
from benchmarks.papers.samullm_plans.tables import sheets
from caesura.planning.plan import Placement


def test_documents_have_the_papers_lengths():
    for documents, longest in ((100, 60), (300, 201)):
        chunks = chunk_counts(documents, seed=1)
        assert len(chunks) == documents
        assert max(chunks) == longest
        assert median(chunks) == 3


def test_prompts_have_the_papers_lengths():
    prompts = [one.prompt_tokens for one in ensemble(2000, 256).requests[:2000]]
    assert 5 <= min(prompts) <= max(prompts) <= 127
    assert mean(prompts) == pytest.approx(21, abs=2)
    routed = [one.prompt_tokens for one in routing().requests]
    assert len(routed) == 6856
    assert mean(routed) == pytest.approx(310, abs=10)


def test_a_routings_real_lengths_differ_from_those_that_the_plan_expects():
    work = routing()
    real, planned = work.real(1), work.planned(1)
    assert mean(real.values()) == pytest.approx(199, rel=0.05)
    assert mean(planned.values()) > 2 * mean(real.values())


def test_evaluations_need_the_last_summary_of_their_document():
    work = chain(100, 2, 900)
    judged = [one for one in work.requests if one.task == "judge"]
    assert len(judged) == 200
    chunks = chunk_counts(100, 1)
    assert judged[0].needs == (f"summary/0/0/{chunks[0] - 1}",)


def test_two_applications_have_an_engine_each_of_a_model_that_both_use():
    models = [one.name for one in mixed(100, 10, 256).application.models]
    assert models.count("vicuna-13b-v1.5") == 1
    assert "vicuna-13b-v1.5 (summaries)" in models


def test_every_model_fits_and_larger_ones_need_several_devices():
    engine = engines()
    for name in SHAPES:
        for degree in model_of(name).tensor_parallel:
            costs = engine(name, degree)
            assert costs is not None
            assert costs.valid(Placement(name, 1, degree)), (name, degree)
    assert min(model_of("Llama-2-70b-chat-hf").tensor_parallel) == 2
    assert load_seconds("chatglm3-6b") == 11
    assert load_seconds("Llama-2-70b-chat-hf") == 47


def test_a_runs_step_times_differ_by_at_most_the_fits_error():
    from caesura.simulator.machine import StepShape

    step = StepShape(64, 64, 64, 20_000, 400, 0.0)
    plain, other = engines()("alpaca-13b", 1), engines(3)("alpaca-13b", 1)
    assert plain is not None
    assert other is not None
    ratio = other.latency.seconds(step) / plain.latency.seconds(step)
    assert ratio != 1
    assert abs(ratio - 1) <= 0.0527


def test_a_measured_row_is_kept_and_makes_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "FOLDER", tmp_path)
    tiny = Experiment("tiny", "7a", lambda: ensemble(20, 64))
    found = {}
    for strategy in ("best", "greedy", "max", "min"):
        plans = measure.measured(tiny, strategy, False, only_kept=False)
        assert plans is not None
        found["tiny", strategy, False] = plans
        assert measure.measured(tiny, strategy, False, only_kept=True) == plans
    ratios = sheets([tiny], found)[0].rows[0]
    assert ratios[0] == "tiny"
    assert float(ratios[2]) > 1.5  # 20 requests do not use 8 devices.
    assert measure.measured(tiny, "longest-first", False, only_kept=True) is None


def test_small_rows_are_one_of_each_application():
    assert len([one for one in EXPERIMENTS if one.small]) == 4
