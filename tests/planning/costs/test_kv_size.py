"""The KV cache's size as the flags of `vllm serve` set it, in costs and in plans."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Model
from caesura.planning.costs.devices import (
    BUNDLED_KV_BYTES,
    CORE_BLOCK_TOKENS,
    CORE_KV_BYTES,
    Kind,
    this_machine,
)
from caesura.planning.costs.engine import EngineCosts
from caesura.planning.costs.measured import MeasuredCosts, MeasuredEngine, model_name
from caesura.planning.costs.shapes import KvSize, kv_arguments, kv_size
from caesura.planning.costs.sources import engine_of
from caesura.planning.costs.stages import split
from caesura.planning.plan import Placement
from caesura.runtime import launch
from caesura.simulator.latency.analytic import A100_80G

from .small import engine

GPU = Kind("a gpu", A100_80G, 2e9)
CORES = Kind("1 CPU core", replace(A100_80G, memory=20e9), 5e8, CORE_KV_BYTES, CORE_BLOCK_TOKENS)
KV_BYTES = 2 * 2 * 2 * 64
"""Of a token of the model below: keys and values of two layers, 64 wide, of two bytes."""
CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
WHOLE = Placement("m")


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


def costs(
    directory: str, arguments: Sequence[str], kind: Kind = GPU, *engines: MeasuredEngine
) -> EngineCosts:
    model = Model("m", directory, tuple(arguments))
    found = engine_of(model, 1, MeasuredCosts(engines=engines), kind).costs
    assert found is not None
    return found


def measured(directory: str, kind: Kind, *arguments: str, tokens: int = 1000) -> MeasuredEngine:
    return MeasuredEngine(
        model=model_name(directory),
        device=kind.name,
        steps=CostModel(0.01, 0.001, 0.001, 0.0, 64),
        kv_tokens=tokens,
        kv_bytes=KV_BYTES,
        weight_bytes=1e6,
        load_seconds=7.0,
        kv_arguments=arguments,
    )


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["--kv-cache-memory-bytes", "1000"], KvSize(memory_bytes=1000)),
        (["--kv_cache_memory_bytes=2G"], KvSize(memory_bytes=2 * 1024**3)),
        (["--kv-cache-memory-bytes", "1.5g"], KvSize(memory_bytes=1_500_000_000)),
        (["--num-gpu-blocks-override=40", "--block-size", "32"], KvSize(0, 40, 32)),
        (["--gpu-memory-utilization", "0.5"], KvSize(utilization=0.5)),
        (["--device-memory-utilization=.25"], KvSize(utilization=0.25)),
        (["--max-model-len", "512", "--enforce-eager"], KvSize()),
        (["--kv-cache-memory-bytes"], KvSize()),
    ],
)
def test_flags_are_read_as_vllm_reads_them(arguments: list[str], size: KvSize) -> None:
    assert kv_size(arguments) == size
    assert kv_size(kv_arguments(arguments)) == size


def test_the_last_of_a_flag_counts_and_blocks_go_before_bytes() -> None:
    twice = kv_size(["--num-gpu-blocks-override", "3", "--num-gpu-blocks-override=5"])
    assert twice.on_device(kv_bytes=10, block_tokens=16) == 5 * 16 * 10
    both = kv_size(["--kv-cache-memory-bytes=1k", "--num-gpu-blocks-override=5"])
    assert both.on_device(kv_bytes=10, block_tokens=16) == 5 * 16 * 10
    assert kv_size([]).on_device(10, 16) == 0


@pytest.mark.parametrize(
    ("arguments", "kv"),
    [
        (["--kv-cache-memory-bytes", "1000000"], 1_000_000),
        (["--num-gpu-blocks-override", "100"], 100 * 16 * KV_BYTES),
        (["--num-gpu-blocks-override", "100", "--block-size", "64"], 100 * 64 * KV_BYTES),
    ],
)
def test_a_given_size_is_that_of_the_engine_whatever_a_placement_says(
    directory: str, arguments: list[str], kv: int
) -> None:
    for found in (
        costs(directory, arguments),
        costs(directory, arguments, GPU, measured(directory, GPU)),
    ):
        assert found.held(WHOLE) == found.weight_bytes + kv
        assert found.held(Placement("m", kv_bytes=5)) == found.weight_bytes + kv
        assert found.kv_tokens(WHOLE) == kv // KV_BYTES // 16 * 16


def test_a_share_of_the_memory_bounds_weights_and_cache(directory: str) -> None:
    half = costs(directory, ["--gpu-memory-utilization", "0.5"])
    assert half.held(WHOLE) == 0.5 * A100_80G.memory - GPU.workspace


def test_a_measured_engine_with_another_share_has_so_much_more_room(directory: str) -> None:
    """It took 92 % of the device then, workspace included, and takes a half now."""
    found = measured(directory, GPU, tokens=10_000_000)
    assert costs(directory, [], GPU, found).room == 1e6 + 10_000_000 * KV_BYTES
    whole = (1e6 + 10_000_000 * KV_BYTES + GPU.workspace) / 0.92
    half = costs(directory, ["--gpu-memory-utilization=0.5"], GPU, found)
    assert half.room == pytest.approx(0.5 * whole - GPU.workspace)
    then = measured(directory, GPU, "--gpu-memory-utilization=0.5", tokens=10_000_000)
    same = costs(directory, ["--gpu-memory-utilization=0.5"], GPU, then)
    assert same.room == 1e6 + 10_000_000 * KV_BYTES


def test_an_engine_of_a_given_size_does_not_show_how_much_memory_there_is(directory: str) -> None:
    then = measured(directory, GPU, "--kv-cache-memory-bytes=512000")
    found = costs(directory, [], GPU, then)
    assert found.room == 0.9 * A100_80G.memory - GPU.workspace
    assert found.held(WHOLE) == found.room


def test_engines_on_cores_have_the_size_that_serving_gives_them(directory: str) -> None:
    """Not all of the main memory."""
    assumed = costs(directory, [], CORES)
    assert assumed.held(WHOLE) == assumed.weight_bytes + CORE_KV_BYTES
    assert costs(directory, ["--gpu-memory-utilization=0.1"], CORES) == assumed
    less = costs(directory, ["--kv-cache-memory-bytes", "1M"], CORES)
    assert less.held(WHOLE) == less.weight_bytes + 2**20
    found = costs(directory, [], CORES, measured(directory, CORES))
    assert found.kv_tokens(WHOLE) == 992, "as measured, in whole blocks"
    assert found.room == 0.9 * 20e9 - 5e8
    narrow = replace(CORES, device=replace(CORES.device, memory=2e9))
    assert costs(directory, [], narrow).held(WHOLE) == 0.9 * 2e9 - 5e8


def test_the_defaults_are_those_of_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch.CPU_ARGS["kv_cache_memory_bytes"] == CORE_KV_BYTES
    assert launch.CPU_BLOCK_SIZE == CORE_BLOCK_TOKENS
    assert launch.BUNDLED_ARGS["kv_cache_memory_bytes"] == BUNDLED_KV_BYTES
    monkeypatch.setattr("caesura.planning.costs.devices._gpu", lambda: "")
    assert this_machine(1).kv_bytes == CORE_KV_BYTES
    bundled = costs("", [])
    assert bundled.held(WHOLE) == bundled.weight_bytes + BUNDLED_KV_BYTES


def test_models_that_share_a_device_leave_a_given_size_as_it_is() -> None:
    fixed = engine(longest=100, kv_given=300, kv_fixed=True)
    free = engine(longest=200)
    first, second = split([fixed, free], [Placement("a"), Placement("b")])
    assert (first.kv_bytes, second.kv_bytes) == (300, 2000 - 2 * 400 - 300)
    assert fixed.held(first) + free.held(second) == 2000
    small = engine(longest=400, kv_given=300, kv_fixed=True)
    assert split([small, free], [Placement("a"), Placement("b")]) == ()
    large = engine(longest=100, kv_given=1100, kv_fixed=True)
    assert split([large, free], [Placement("a"), Placement("b")]) == ()
