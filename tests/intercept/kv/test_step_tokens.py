"""Steps beside requests that decode are as long as the device has use for, and no longer."""

import pytest

from caesura.intercept.kv.costs import SMALLEST_CHUNK
from caesura.intercept.kv.step_budget import StepTokens

MOST = 2048
SATURATION = 256


def limit(
    rule: StepTokens,
    measured: bool,
    recomputes: bool = False,
    decoding: int = 8,
    waiting: int = 10_000,
) -> int:
    return rule.limit(
        MOST, SATURATION, measured, lambda: recomputes, lambda: decoding, lambda: waiting
    )


def test_what_one_step_can_compute_beside_few_decodes_is_not_cut() -> None:
    few = StepTokens(few_decodes=4)
    assert limit(few, measured=True, decoding=4, waiting=MOST - 4) == MOST
    assert limit(few, measured=True, decoding=4, waiting=MOST - 3) == 2 * SATURATION
    assert limit(few, measured=True, decoding=5, waiting=100) == 2 * SATURATION
    assert limit(StepTokens(64, few_decodes=4), True, decoding=4, waiting=100) == 64


def test_a_measured_saturation_fits_twice() -> None:
    assert limit(StepTokens(), measured=True) == 2 * SATURATION
    assert limit(StepTokens(saturations=3), measured=True) == 3 * SATURATION


def test_a_guess_bounds_only_what_is_recomputed() -> None:
    assert limit(StepTokens(), measured=False) == MOST
    assert limit(StepTokens(), measured=False, recomputes=True) == SATURATION


def test_steps_in_which_none_decodes_are_vllms() -> None:
    assert limit(StepTokens(64), measured=True, decoding=0) == MOST
    assert limit(StepTokens("vllm"), measured=True) == MOST


def test_every_step_makes_some_progress_beside_the_decodes() -> None:
    assert limit(StepTokens(10), measured=True, decoding=100) == 100 + SMALLEST_CHUNK


@pytest.mark.parametrize("chunk", [MOST, 10 * MOST])
def test_no_step_is_longer_than_vllms(chunk: int) -> None:
    assert limit(StepTokens(chunk), measured=True) == MOST
