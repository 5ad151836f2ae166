"""Convert a latency model to a cost model, as `caesura calibrate` does, and back.

Simulated policies know a machine as they know a real one: by a cost model that was fitted to a grid
of steps. It has the small errors of such a fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import fit
from caesura.simulator.machine import LatencyModel, StepShape, pairs_within

# The grid of `scheduler/vllm/client/measurement.py`, for an engine with these limits.
MAX_TOKENS = 2048
MAX_SEQUENCES = 256
LONGEST = 8192
SMALLEST = 16
DECODED = 12


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A machine whose steps take exactly the time of a cost model, such as a calibration's."""

    name: str
    cost: CostModel

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        return self.cost.step_seconds(step.tokens, step.context)


def prefill_shape(tokens: int, behind: int = 0, window: int = 0) -> StepShape:
    """Return the step that computes `tokens` of one request after `behind` computed tokens.

    `window` is that of the layers which have one, in tokens; 0: none has.
    """
    pairs = tokens * behind + tokens * (tokens + 1) / 2
    end = behind + tokens
    return StepShape(
        tokens, 1, 0, end, end, pairs, min(end, window), pairs_within(window, behind, end)
    )


def decode_shape(sequences: int, context: int, window: int = 0) -> StepShape:
    """Return the step in which `sequences` requests decode to contexts of `context` tokens."""
    return StepShape(
        tokens=sequences,
        sequences=sequences,
        decodes=sequences,
        context=sequences * context,
        longest=context,
        pairs=0.0,
        windowed=sequences * min(context, window),
    )


def grid(kv_tokens: int, window: int = 0) -> list[StepShape]:
    """Return the steps that a calibration times on an engine whose KV cache holds `kv_tokens`.

    `window` is that of the layers which have one, in tokens; 0: none has. Raises `ValueError` if
    the cache is too small to calibrate with.
    """
    longest = min(LONGEST, kv_tokens // 2)
    behind = longest // 2
    if behind < SMALLEST:
        raise ValueError(
            f"a KV cache of {kv_tokens} tokens is too small to calibrate with:"
            f" it needs at least {4 * SMALLEST}"
        )
    most = min(MAX_TOKENS, longest)
    found = [prefill_shape(size, 0, window) for size in _sizes(SMALLEST, most, 2)]
    most = min(MAX_TOKENS, longest - behind)
    found += [prefill_shape(size, behind, window) for size in _sizes(SMALLEST, most, 4)]
    for context in sorted({SMALLEST, longest // 4, longest // 2}):
        fitting = min(MAX_SEQUENCES, kv_tokens * 3 // 4 // (context + DECODED))
        middle = context + DECODED // 2
        found += [decode_shape(size, middle, window) for size in _sizes(1, fitting, 2)]
    return found


def fitted(latency: LatencyModel, kv_tokens: int, window: int = 0) -> tuple[CostModel, float]:
    """Return the cost model that a calibration would fit, without a link, and its mean error.

    Raises `ValueError` if the KV cache is too small to calibrate with.
    """
    return fit(
        (step.tokens, step.context, latency.seconds(step)) for step in grid(kv_tokens, window)
    )


def with_link(cost: CostModel, link_bytes: float, kv_bytes: int) -> CostModel:
    """Return the cost model with the link's rate in tokens per second, equal both ways."""
    rate = link_bytes / kv_bytes
    return replace(cost, out_rate=rate, in_rate=rate)


def _sizes(least: int, most: int, factor: int) -> Iterator[int]:
    size = least
    while size < most:
        yield size
        size *= factor
    if most >= least:
        yield most
