"""The time of a step from the device's rates: a roofline with a smooth corner.

A step reads the weights once and multiplies each token with them. The slower of the two counts, and
near the ridge both do. Besides, a step has a base time, reads the batch's KV, and computes the
attention of prefills.
"""

from dataclasses import dataclass, fields
from math import inf

from caesura.simulator.machine import StepShape

CORNER = 3.0
"""The norm that joins reading and multiplying: at the ridge a step takes 1.26 times either."""

ATTENTION = 0.8
"""The share of the matrices' FLOP/s that the attention of a prefill reaches."""

REDUCES = 2
"""All-reduces per layer under tensor parallelism (Megatron-LM, Shoeybi et al. 2019, section 3)."""

ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """T = t0 + ((W/BW)^3 + (2 P n/F)^3)^(1/3) + KV/BW + 4 L w pairs/(0.8 F), for n query tokens.

    `weight_bytes` is W, the bytes of weights that a step reads. `parameters` is P, the parameters
    that a token is multiplied with. `layers` is L. `width` is w, the number of query heads times
    their size; the scores and the values of a query-key pair take 2 FLOP each per unit of w.
    `kv_bytes` is the size of a token's KV. All of these are the whole model's, and each of
    `devices` has a share of weights, heads and KV (tensor parallelism). `bandwidth` in bytes per
    second and `flops` in FLOP per second are what one device reaches, not its peak. `base` is t0
    in seconds.

    Each layer has two all-reduces of n times `hidden` activations around a ring. Each takes
    `reduce_seconds` and the time of its bytes at `reduce_bandwidth`; by default communication is
    free. No GPU has confirmed this form. Raises `ValueError` for a number that is not positive
    (`base` and `reduce_seconds` may be 0).
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
                raise ValueError(
                    f"roofline {self.name!r}: {item.name} must be positive, got {value!r}"
                )

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
        """Return the query tokens at which multiplying takes as long as reading the weights."""
        return self.weight_bytes / self.bandwidth * self.flops / (2 * self.parameters)

    def _reducing(self, tokens: int) -> float:
        """Return the seconds of all-reduces; a ring moves 2 (k - 1)/k of the bytes per device."""
        if self.devices == 1:
            return 0.0
        carried = 2 * (self.devices - 1) / self.devices * tokens * self.hidden * ACTIVATION_BYTES
        once = self.reduce_seconds + carried / self.reduce_bandwidth
        return REDUCES * self.layers * once
