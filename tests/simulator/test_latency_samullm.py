"""SamuLLM's latency model: by hand, on iterations that its fits have not seen, and mixed steps."""

import csv
import gzip
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.simulator.latency.analytic import A100_80G, LLAMA_2_7B, LLAMA_2_13B, roofline
from caesura.simulator.latency.calibrated import decode_shape, prefill_shape
from caesura.simulator.latency.samullm import Line, Phase, SamuLLM, fits, samullm
from caesura.simulator.machine import StepShape

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "benchmarks" / "data" / "samullm_iterations.csv.gz"

EVERY = [(model, degree) for model, degrees in fits().items() for degree in degrees]


def line(base: float, slope: float) -> Line:
    """What costs `base` and `slope` for one request, and twice as much for three."""
    return Line((1.0, 3.0), (base, 2 * base), (slope, 2 * slope))


PREFILL = Phase(line(10.0, 1.0), line(1.0, 0.01), line(0.5, 0.0))
DECODE = Phase(line(8.0, 2.0), line(1.0, 0.001), line(0.5, 0.02))
PLAIN = SamuLLM("plain", 0.1, 0.001, 1000, 4, (0.0, 0.0), PREFILL, DECODE)


def test_coefficients_are_linear_between_knots_and_each_further_request_costs_the_same() -> None:
    assert line(8.0, 2.0).at(1, 5) == 18
    assert line(8.0, 2.0).at(2, 5) == pytest.approx(12 + 3 * 5)
    assert line(8.0, 2.0).at(3, 5) == 36
    assert line(8.0, 2.0).at(6, 10) == 2 * 36


def test_times_by_hand() -> None:
    prefill = StepShape(20, 1, 0, 20, 20, 210.0)
    prefilled = 10 + (0.1 * 19 + 0.001 * 420) + 1 + 0.01 * 20 + 0.5
    assert PLAIN.seconds(prefill) == pytest.approx(prefilled)
    decode = StepShape(2, 2, 2, 70, 40, 0.0)
    decoded = 1.5 * (8 + 2 * 0.07 + 1 + 0.001 * 80 + 0.5 + 0.02 * 70)
    assert PLAIN.seconds(decode) == pytest.approx(decoded)
    # The prompt has 50 tokens behind it, so that 70 of the context are its own.
    mixed = StepShape(22, 3, 2, 140, 70, 210.0 + 20 * 50)
    behind = 10 + (0.1 * 19 + 0.001 * 2420) + 1 + 0.01 * 20 + 0.5
    longest = 1.5 * 0.001 * (2 * 70 - 80)  # the longest of the step may be any request's
    once = 8 + 0.002 + 1 + 0.001 + 0.5 + 0.02
    assert PLAIN.seconds(mixed) == pytest.approx(behind + decoded + longest - once)


def test_iterations_that_were_held_out() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    stated: dict[str, list[float]] = defaultdict(list)
    with gzip.open(SAMPLE, "rt") as file:
        for row in csv.DictReader(file):
            model = samullm(row["model"], int(row["tp"]))
            seconds = model.seconds(shape(row))
            errors[row["phase"]].append(abs(seconds / float(row["seconds"]) - 1))
            stated[row["phase"]].append(model.errors[row["phase"] == "decode"])
    for phase, within in (("prefill", 0.04), ("decode", 0.065)):
        assert len(errors[phase]) == 8 * len(EVERY)
        assert fmean(stated[phase]) < within
        assert fmean(errors[phase]) < 1.25 * fmean(stated[phase])
        assert median(errors[phase]) < 0.04


def test_the_roofline_of_an_a100_80g() -> None:
    models = {"Llama-2-7b-chat-hf": LLAMA_2_7B, "Llama-2-13b-hf": LLAMA_2_13B}
    errors: dict[str, list[float]] = defaultdict(list)
    with gzip.open(SAMPLE, "rt") as file:
        for row in csv.DictReader(file):
            if row["model"] in models and row["tp"] == "1":
                model = roofline(row["model"], models[row["model"]], A100_80G)
                seconds = model.seconds(shape(row))
                errors[row["phase"]].append(abs(seconds / float(row["comp"]) - 1))
    assert fmean(errors["prefill"]) < 0.2
    assert fmean(errors["decode"]) < 0.15


def shape(row: dict[str, str]) -> StepShape:
    """What the iteration computed, padding too."""
    requests, total, longest = (int(row[name]) for name in ("requests", "total", "longest"))
    if row["phase"] == "decode":
        return StepShape(requests, requests, requests, total, longest, 0.0)
    padded = requests * longest
    return StepShape(padded, requests, 0, padded, longest, padded * (longest + 1) / 2)


@pytest.mark.parametrize(("name", "degree"), EVERY)
def test_every_fit_is_a_machine_s(name: str, degree: int) -> None:
    model = samullm(name, degree)
    assert max(model.errors) < 0.11
    for phase in (model.prefill, model.decode):
        for part in (phase.comp, phase.prep, phase.samp):
            assert list(part.bases) == sorted(part.bases) and min(part.slopes) >= 0
    # One decode reads the weights: 1 ms at least and 60 ms at most for 6 to 40 GB on A100s.
    assert 0.001 < model.seconds(decode_shape(1, 100)) < 0.06
    assert model.seconds(prefill_shape(4000)) > 2.5 * model.seconds(prefill_shape(1000))
    # The keys and values fit into what an A100-80G has.
    assert model.kv_tokens * model.kv_bytes < 80e9


@given(
    fit=st.sampled_from(EVERY),
    decodes=st.integers(0, 256),
    prompts=st.integers(0, 4),
    chunk=st.integers(1, 512),
    behind=st.integers(0, 4096),
    each=st.integers(1, 2000),
)
def test_a_mixed_step_takes_longer_than_either_and_less_than_both(
    fit: tuple[str, int], decodes: int, prompts: int, chunk: int, behind: int, each: int
) -> None:
    if not decodes + prompts:
        return
    model = samullm(*fit)
    one = prefill_shape(chunk, behind)
    tokens, pairs = prompts * chunk, prompts * one.pairs
    prefill = StepShape(tokens, prompts, 0, prompts * one.context, one.longest, pairs)
    decode = decode_shape(decodes, each)
    mixed = StepShape(
        tokens + decodes,
        prompts + decodes,
        decodes,
        prefill.context + decode.context,
        max(prefill.longest if prompts else 0, each),
        pairs,
    )
    alone = [model.seconds(part) for part in (prefill, decode) if part.sequences]
    # That the longest may be a prefilling request's adds to the preparation of decodes.
    same = replace(decode, longest=mixed.longest)
    most = sum(model.seconds(part) for part in (prefill, same) if part.sequences)
    assert max(alone) - 1e-9 <= model.seconds(mixed) <= most * (1 + 1e-9)
    more = replace(mixed, context=mixed.context + 1000, longest=mixed.longest + 1000)
    assert model.seconds(more) >= model.seconds(mixed)


def test_a_step_without_the_tokens_of_its_prompts_takes_the_time_of_its_decodes() -> None:
    both = StepShape(tokens=12, sequences=3, decodes=2, context=60, longest=30, pairs=55.0)
    rest = replace(both, tokens=2, pairs=0.0)
    assert PLAIN.seconds(rest) == PLAIN.seconds(replace(rest, sequences=2))
    assert PLAIN.seconds(rest) < PLAIN.seconds(both)
