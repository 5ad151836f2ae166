"""The fast simulator beside the scheduler that serves, on the same requests."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.planning.whole import real_run
from caesura.planning.application.requests import Request
from caesura.planning.costs.cluster import run_component
from caesura.planning.costs.engine import EngineCosts, Flops
from caesura.planning.costs.lengths import draw_lengths, make_lengths
from caesura.planning.costs.stages import FastStages
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress, StageTimes
from caesura.simulator.latency.machines import make_machine

MODEL = "vicuna-13b-v1.5"
OTHER = "alpaca-13b"


def engine(model: str, kv: int) -> EngineCosts:
    machine = make_machine(f"samullm:model={model},tp=1,kv={kv}")
    room = machine.kv_tokens * machine.kv_bytes
    return EngineCosts(machine.latency, room, 0, machine.kv_bytes, 4096, Flops(1.0, 0.0), 9.0)


def asked(model: str, count: int, prompt: int, seed: int, needs: str = "") -> list[Request]:
    generator = np.random.default_rng(seed)
    prompts = generator.integers(1, 2 * prompt, count)
    return [
        Request(f"{model}/{i}", model, model, int(prompts[i]), 256, (f"{needs}/{i}",) * bool(needs))
        for i in range(count)
    ]


def both(
    requests: list[Request], placements: list[Placement], kv: int
) -> tuple[StageTimes, StageTimes]:
    models = [placement.model for placement in placements]
    sources = {model: make_lengths(f"samullm:{model}") for model in models}
    longest = dict.fromkeys(models, 2048)
    lengths = draw_lengths(requests, sources, longest, np.random.default_rng(7))
    engines = {model: replace(engine(model, kv), longest=2048) for model in models}
    fast, real = (
        FastStages(models, requests, lengths, lambda model, _: engines[model], simulate).run(
            placements, Progress(), to_the_end=True
        )
        for simulate in (run_component, real_run)
    )
    return fast, real


@pytest.mark.parametrize(
    ("count", "prompt", "kv", "within"),
    [(150, 40, 55_000, 0.002), (80, 900, 55_000, 0.01), (120, 60, 8_000, 0.03)],
)
def test_a_stage_takes_the_time_of_the_real_scheduler(
    count: int, prompt: int, kv: int, within: float
) -> None:
    fast, real = both(asked(MODEL, count, prompt, 3), [Placement(MODEL)], kv)
    assert fast.seconds != real.seconds
    assert fast.seconds == pytest.approx(real.seconds, rel=within)
    ends = real.after.finished
    mean = np.mean([abs(fast.after.finished[key] - end) for key, end in ends.items()])
    assert mean < within * np.mean(list(ends.values()))


def test_replicas_and_models_that_wait_for_others_take_its_time_too() -> None:
    requests = [*asked(MODEL, 90, 50, 1), *asked(OTHER, 90, 50, 2, needs=MODEL)]
    fast, real = both(requests, [Placement(MODEL, 2), Placement(OTHER)], 20_000)
    assert fast.model_ends.keys() == real.model_ends.keys() == {MODEL, OTHER}
    for model, end in real.model_ends.items():
        assert fast.model_ends[model] == pytest.approx(end, rel=0.01)
