"""A step's time from what the device can do: a roofline with smooth corners.

Weights are read once and each token is multiplied with them; the slower of the two counts, and
near the ridge a little of both. The batch's KV is read besides, prefill pays for its attention,
and every step has a base.
"""

from dataclasses import dataclass, fields
from math import inf

from caesura.simulator.machine import StepShape

CORNER = 3.0
"""The norm that joins reading weights and multiplying: at the ridge a step takes 1.26 of either."""

ATTENTION = 0.8
"""The part of the matrices' FLOP/s that the attention of a prefill reaches."""

REDUCES = 2
"""All-reduces of a layer under tensor parallelism (Megatron-LM, Shoeybi et al. 2019, section 3)."""

ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """T = t0 + ((W/BW)^3 + (2 P n/F)^3)^(1/3) + KV/BW + 4 L w pairs/(0.8 F), for n query tokens.

    `weight_bytes` is W, what a step reads of the weights; `parameters` P, those that a token is
    multiplied with; `layers` L; `width` w, the query heads' number times their size, which is what
    scores and values of a query-key pair take multiplications for (2 FLOP each, twice);
    `kv_bytes` the KV of a token. All of these are the whole model's: each of `devices` has its
    share of weights, heads and KV (tensor parallelism). `bandwidth` in bytes per second and
    `flops` in FLOP per second are a device's, as reached, not its peak; `base` is t0 in seconds.

    Two all-reduces per layer of n times `hidden` activations take `reduce_seconds` each and their
    bytes over `reduce_bandwidth`, around a ring; by default communication is free. The form but
    for the all-reduces is a roofline with a smooth knee, which no GPU has confirmed. Raises
    `ValueError` for numbers that no device has.
    """

    name: str
    weight_bytes: float
    parameters: float
    layers: int
    width: int
    hidden: int
    kv_bytes: int
    bandwidth: float
    flops: float
    base: float
    devices: int = 1
    reduce_seconds: float = 0.0
    reduce_bandwidth: float = inf

    def __post_init__(self) -> None:
        free = {"base", "reduce_seconds"}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "name" and not (value > 0 or (value == 0 and item.name in free)):
                raise ValueError(f"roofline {self.name!r}: {item.name} is {value!r}")

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        devices = self.devices
        reading = self.weight_bytes / devices / self.bandwidth
        multiplying = 2 * self.parameters * step.tokens / devices / self.flops
        matrices = float((reading**CORNER + multiplying**CORNER) ** (1 / CORNER))
        context = step.context * self.kv_bytes / devices / self.bandwidth
        scores = 4 * self.layers * self.width * step.pairs / devices
        attention = scores / (ATTENTION * self.flops)
        return self.base + matrices + context + attention + self._reducing(step.tokens)

    @property
    def ridge(self) -> float:
        """Query tokens at which multiplying takes as long as reading the weights."""
        return self.weight_bytes / self.bandwidth * self.flops / (2 * self.parameters)

    def _reducing(self, tokens: int) -> float:
        """Return what all-reduces take; a ring carries 2 (k - 1)/k of the bytes past a device."""
        if self.devices == 1:
            return 0.0
        carried = 2 * (self.devices - 1) / self.devices * tokens * self.hidden * ACTIVATION_BYTES
        once = self.reduce_seconds + carried / self.reduce_bandwidth
        return REDUCES * self.layers * once
