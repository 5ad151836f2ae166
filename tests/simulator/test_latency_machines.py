"""Machines by name and by text, and the cost model that each is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.simulator.latency.analytic import Roofline
from caesura.simulator.latency.calibrated import decode_shape, fitted, grid, prefill_shape
from caesura.simulator.latency.machines import MACHINES, make_machine
from caesura.simulator.latency.samullm import samullm
from caesura.simulator.machine import LatencyModel, StepShape

GPTJ = "gptj-6b-a100-40g"
COST = CostModel(0.01, 1e-5, 8e-5, 3e-8, 200, 50_000.0, 40_000.0)


@pytest.fixture
def calibration(tmp_path: Path) -> Calibration:
    found = Calibration(
        "some/model", "bfloat16", "gpu", "0.32.0", 32, 1000, "2026-01-01", COST, 0, 0, 0, (), ()
    )
    found.save(tmp_path / "found.json")
    found = replace(found, cost=replace(COST, out_rate=0.0, in_rate=0.0))
    found.save(tmp_path / "linkless.json")
    return found


def test_the_policy_study_s_machines() -> None:
    gptj, one, two = (
        MACHINES[name] for name in (GPTJ, "vicuna-13b-a100-40g", "vicuna-13b-a100-40g-tp2")
    )
    assert gptj.kv_tokens == pytest.approx(52_300, rel=1e-3) and gptj.kv_bytes == 458_752
    assert gptj.host_bytes == 128 * 10**9 and gptj.link_bytes == 20e9 and not gptj.full_duplex
    assert one.kv_tokens == pytest.approx(12_900, rel=5e-3) and one.kv_bytes == 819_200
    assert two.kv_tokens == pytest.approx(58_600, rel=1e-3) and two.kv_bytes == 409_600
    # Each device keeps its share on the host and has a link of its own.
    assert two.host_bytes // two.kv_bytes == one.host_bytes // one.kv_bytes
    assert two.cost.in_rate == pytest.approx(2 * one.cost.in_rate)
    assert [MACHINES[f"llama-2-{size}-a100-80g"].kv_tokens for size in ("7b", "13b")] == [
        120_000,
        64_000,
    ]


EXPERTS = {name for name in MACHINES if name.startswith(("qwen3-next", "gpt-oss", "nemotron"))}
"""Mixtures of experts, of which small steps read few: no line fits the time of their steps."""

DENSE = [name for name in MACHINES if name not in EXPERTS]


@pytest.mark.parametrize("name", MACHINES)
def test_the_cost_model_is_what_a_calibration_would_find(name: str) -> None:
    machine = MACHINES[name]
    assert machine is MACHINES[name] is make_machine(name)
    assert machine.name == machine.latency.name == name
    assert machine.cost.out_rate == machine.cost.in_rate == machine.link_bytes / machine.kv_bytes
    cost, error = fitted(machine.latency, machine.kv_tokens, machine.window)
    assert replace(machine.cost, out_rate=0.0, in_rate=0.0) == cost
    if name in EXPERTS:
        assert 0.3 < error < 0.45
        return
    assert error < 0.04
    # Between the sizes that were timed, too.
    window = machine.window
    for step in (
        prefill_shape(150, 0, window),
        prefill_shape(700, 1000, window),
        decode_shape(24, 400, window),
    ):
        seconds = machine.latency.seconds(step)
        assert cost.step_seconds(step.tokens, step.context) == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize("name", DENSE)
def test_a_step_saturates_near_the_ridge(name: str) -> None:
    machine = MACHINES[name]
    assert isinstance(machine.latency, Roofline)
    assert machine.cost.saturation == pytest.approx(machine.latency.ridge, rel=0.25)
    assert machine.cost.per_token_beyond > 3 * machine.cost.per_token


def test_the_grid_is_a_calibration_s() -> None:
    steps = grid(52_300)
    assert {step.tokens for step in steps} >= {1, 16, 256, 2048}
    assert max(step.context for step in steps) <= 52_300 * 3 // 4
    assert max(step.decodes for step in steps) == 256
    assert max(step.context for step in steps if step.pairs) == 4096 + 2048
    assert all(step.tokens <= 200 // 2 for step in grid(200))
    with pytest.raises(ValueError, match="63 tokens is too small"):
        grid(63)


def test_changes_to_a_named_machine() -> None:
    machine = make_machine(f"{GPTJ}:link=8,host=64.5,kv=20000,interference=0.1,duplex=full")
    assert machine.name == f"{GPTJ}:link=8,host=64.5,kv=20000,interference=0.1,duplex=full"
    assert machine.latency is MACHINES[GPTJ].latency
    assert (machine.link_bytes, machine.host_bytes, machine.kv_tokens) == (8e9, 645 * 10**8, 20_000)
    assert machine.interference == 0.1 and machine.full_duplex
    assert machine.cost.out_rate == machine.cost.in_rate == 8e9 / 458_752
    assert not make_machine(f"{GPTJ}:duplex=half").full_duplex
    assert make_machine(f"{GPTJ}:host=0").host_bytes == 0


def test_blocks_hold_16_tokens_unless_said_otherwise() -> None:
    assert MACHINES[GPTJ].block_tokens == make_machine(f"{GPTJ}:link=8").block_tokens == 16
    made = make_machine(f"{GPTJ}:block=32")
    assert made == replace(MACHINES[GPTJ], name=f"{GPTJ}:block=32", block_tokens=32)
    assert make_machine("samullm:model=gpt-j-6b,block=8").block_tokens == 8
    with pytest.raises(ValueError, match="at least 1 token, got 0"):
        replace(made, block_tokens=0)


def test_a_calibrated_machine(calibration: Calibration, tmp_path: Path) -> None:
    machine = make_machine(f"calibration:path={tmp_path / 'found.json'},kv=5000,host=2")
    assert machine.cost == COST
    assert (machine.kv_tokens, machine.kv_bytes, machine.host_bytes) == (5000, 1000, 2 * 10**9)
    assert machine.link_bytes == 40e6
    # Blocks are as large as where it was measured.
    assert machine.block_tokens == calibration.block_size == 32
    other = make_machine(f"calibration:path={tmp_path / 'found.json'},kv=5000,host=2,block=64")
    assert replace(other, name=machine.name, block_tokens=32) == machine
    assert other.block_tokens == 64
    assert machine.latency.seconds(StepShape(300, 9, 3, 4000, 900, 5.0)) == pytest.approx(
        0.01 + 200e-5 + 100 * 8e-5 + 4000 * 3e-8
    )
    linked = make_machine(f"calibration:path={tmp_path / 'linkless.json'},kv=5000,host=2,link=1")
    assert linked.link_bytes == 1e9 and linked.cost.out_rate == linked.cost.in_rate == 1e6
    with pytest.raises(ValueError, match="give link="):
        make_machine(f"calibration:path={tmp_path / 'linkless.json'},kv=5000,host=2")
    with pytest.raises(CalibrationError, match="no calibration at"):
        make_machine(f"calibration:path={tmp_path / 'none.json'},kv=5000,host=2")


def test_a_machine_of_samullm_s() -> None:
    machine = make_machine("samullm:model=Llama-2-7b-chat-hf")
    two: LatencyModel = samullm("Llama-2-7b-chat-hf", 2)
    assert machine.latency is samullm("Llama-2-7b-chat-hf")
    assert (machine.kv_tokens, machine.kv_bytes) == (117_424, 524_288)
    other = make_machine("samullm:model=Llama-2-7b-chat-hf,tp=2,kv=999,link=5")
    assert other.latency is two and other.kv_bytes == 262_144
    assert (other.kv_tokens, other.host_bytes, other.link_bytes) == (999, 64 * 10**9, 5e9)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "unknown machine ''; choose from: gptj-6b-a100-40g, .*calibration, samullm"),
        ("gptj", "unknown machine 'gptj'; choose from: gptj-6b-a100-40g"),
        (
            f"{GPTJ}:speed=1",
            "'speed=1' must be key=value with one of link=, host=, kv=, interference=",
        ),
        (f"{GPTJ}:link", "'link' must be key=value"),
        (f"{GPTJ}:tp=2", "'tp=2' must be key=value"),
        (f"{GPTJ}:link=fast", "link must be a finite number >= 0, got 'fast'"),
        (f"{GPTJ}:link=0", "for no link give host=0"),
        (f"{GPTJ}:host=-1", "host must be a finite number >= 0, got '-1'"),
        (f"{GPTJ}:host=inf", "host must be a finite number >= 0, got 'inf'"),
        (f"{GPTJ}:kv=1.5", "kv must be a whole number >= 1, got '1.5'"),
        (f"{GPTJ}:kv=0", "kv must be a whole number >= 1, got '0'"),
        (f"{GPTJ}:kv=40", "40 tokens is too small to calibrate"),
        (f"{GPTJ}:interference=nan", "interference must be a finite number >= 0, got 'nan'"),
        (f"{GPTJ}:duplex=both", "duplex must be half or full, got 'both'"),
        (f"{GPTJ}:block=0", "block must be a whole number >= 1, got '0'"),
        (f"{GPTJ}:block=16.5", "block must be a whole number >= 1, got '16.5'"),
        (f"{GPTJ}:block", "'block' must be key=value .*block="),
        ("calibration:kv=3", "a calibration also needs path=, host="),
        ("samullm", "samullm needs model="),
        ("samullm:model=gpt-5", "no SamuLLM fit of 'gpt-5'; choose from: .*Mixtral.*vicuna"),
        ("samullm:model=gpt-j-6b,tp=3", "gpt-j-6b at tp=3; choose tp from: 1, 2, 4"),
        ("samullm:model=gpt-j-6b,tp=0", "tp must be a whole number >= 1, got '0'"),
    ],
)
def test_what_cannot_be_made_says_what_can(spec: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_machine(spec)
