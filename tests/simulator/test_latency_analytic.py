"""The roofline, by hand and at its limits."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.simulator.latency.analytic import (
    A100_80G,
    H100_80G,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_3_1_8B,
    QWEN_3_32B,
    Decoder,
    Roofline,
    kv_tokens,
)
from caesura.simulator.latency.calibrated import decode_shape, prefill_shape
from caesura.simulator.latency.machines import PLANS
from caesura.simulator.machine import StepShape

# Reading the weights takes 1 ms, a token 1 ms, 1000 tokens of context 1 ms, 2e6 pairs 1 ms.
PLAIN = Roofline("plain", 1e9, 0.5e9, 10, 10, 16, 10**6, 1e12, 1e12, 0.002)


@pytest.mark.parametrize(
    ("step", "milliseconds"),
    [
        (StepShape(1, 1, 1, 0, 0, 0.0), 2 + 2 ** (1 / 3)),
        (StepShape(2, 2, 2, 3000, 1500, 0.0), 2 + 9 ** (1 / 3) + 3),
        (StepShape(7, 2, 1, 4000, 3000, 6e6), 2 + 344 ** (1 / 3) + 4 + 3),
    ],
)
def test_times_by_hand(step: StepShape, milliseconds: float) -> None:
    assert 1e3 * PLAIN.seconds(step) == pytest.approx(milliseconds)


def test_each_of_two_devices_does_half_and_they_talk_around_a_ring() -> None:
    step = StepShape(7, 2, 1, 4000, 3000, 6e6)
    silent = replace(PLAIN, devices=2)
    assert silent.seconds(step) - 0.002 == pytest.approx((PLAIN.seconds(step) - 0.002) / 2)
    # 2 x 10 layers, each 1 ms and 7 x 16 numbers of 2 bytes, once, at 224 bytes per second.
    talking = replace(silent, reduce_seconds=0.001, reduce_bandwidth=224.0)
    assert talking.seconds(step) - silent.seconds(step) == pytest.approx(20 * 1.001)
    four = replace(talking, devices=4)
    assert four.seconds(step) - replace(silent, devices=4).seconds(step) == pytest.approx(
        20 * (0.001 + 1.5)
    )


def test_a_decode_reads_and_a_prefill_multiplies() -> None:
    model = PLANS["gptj-6b-a100-40g"].latency
    assert isinstance(model, Roofline)
    assert model.seconds(decode_shape(1, 100)) == pytest.approx(
        3e-3 + 12.1e9 / 1.3e12 + 100 * 458_752 / 1.3e12, rel=1e-3
    )
    pairs = 2048 * 2049 / 2
    multiplied = 12.1e9 * 2048 / 156e12 + 4 * 28 * 4096 * pairs / (0.8 * 156e12)
    assert model.seconds(prefill_shape(2048)) == pytest.approx(
        3e-3 + multiplied + 2048 * 458_752 / 1.3e12, rel=1e-3
    )
    # About 30 ms where the KV cache is full.
    assert model.seconds(decode_shape(35, 1494)) == pytest.approx(0.030, rel=0.05)
    assert model.ridge == pytest.approx(120)


@pytest.mark.parametrize("name", PLANS)
@given(
    tokens=st.integers(1, 4096),
    context=st.integers(0, 200_000),
    pairs=st.floats(0, 1e9),
    more=st.integers(1, 4096),
)
def test_more_takes_longer(name: str, tokens: int, context: int, pairs: float, more: int) -> None:
    model = PLANS[name].latency
    step = StepShape(tokens, 1, 0, context, context, pairs)
    seconds = model.seconds(step)
    assert model.seconds(replace(step, tokens=tokens + more)) >= seconds
    assert model.seconds(replace(step, context=context + more)) > seconds
    assert model.seconds(replace(step, pairs=pairs + 1e6 * more)) > seconds


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 0.0},
        {"flops": -1.0},
        {"weight_bytes": nan},
        {"devices": 0},
        {"base": -1e-3},
        {"reduce_bandwidth": 0.0},
    ],
)
def test_numbers_that_no_device_has(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"plain.*{next(iter(wrong))}"):
        replace(PLAIN, **wrong)
    assert replace(PLAIN, base=0.0, reduce_bandwidth=inf).base == 0


@pytest.mark.parametrize(
    ("model", "billions", "kv_bytes"),
    [
        (LLAMA_2_7B, 6.738, 524_288),
        (LLAMA_2_13B, 13.016, 819_200),
        (LLAMA_3_1_8B, 8.030, 131_072),
        (QWEN_3_32B, 32.76, 262_144),
    ],
)
def test_sizes_of_published_models(model: Decoder, billions: float, kv_bytes: int) -> None:
    assert model.parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    assert model.kv_bytes == kv_bytes


def test_what_the_memory_holds() -> None:
    # The most context that SamuLLM's timed iterations held, on one A100-80G.
    assert kv_tokens(LLAMA_2_7B, A100_80G) == pytest.approx(117_424, rel=0.02)
    assert kv_tokens(LLAMA_2_13B, A100_80G) == pytest.approx(59_696, rel=0.02)
    assert kv_tokens(LLAMA_2_13B, A100_80G, 2) == pytest.approx(150_241, rel=0.02)
    assert kv_tokens(QWEN_3_32B, H100_80G, 2) > 2 * kv_tokens(QWEN_3_32B, H100_80G)
    with pytest.raises(ValueError, match="do not fit"):
        kv_tokens(QWEN_3_32B, replace(H100_80G, memory=60e9))
