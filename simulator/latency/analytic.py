"""The time of a step from the device's rates, with the shapes of published models and devices.

It is a roofline with a smooth corner. A step reads the weights once and multiplies each token with
them. The slower of the two counts, and near the ridge both do. Besides, a step has a base time,
reads the batch's KV, and computes the attention of prefills.
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
class Experts:
    """The routed experts of all layers: their `bytes`, and the `share` that a token is sent to.

    A step of n tokens reads the part 1 - (1 - share)^n of them, as if each token chose its experts
    independently and all experts alike. Real routing is more uneven, so that it reads less.
    """

    bytes: float
    share: float

    def read(self, tokens: int) -> float:
        """Return the bytes that a step of so many tokens reads."""
        return self.bytes * (1.0 - (1.0 - self.share) ** tokens)


@dataclass(frozen=True, slots=True)
class Windowed:
    """Attention layers with a window: how many, and the bytes of a token's KV in all of them."""

    layers: int
    kv_bytes: int


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
    (`base`, `reduce_seconds` and the next two may be 0).

    Models whose layers differ have more terms, all of them derived and none measured. `layers` and
    `kv_bytes` are those of full attention, and `other_layers` the others, which matter to
    all-reduces. Of a mixture of experts, W grows by what `experts` says. `windowed` layers read and
    multiply as much as their window shows of each context. Each step reads and writes the
    `state_bytes` of each of its sequences. Multiplying with the state is left out: it is 1 to 2 %
    of P in the models here.
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
    other_layers: int = 0
    state_bytes: float = 0.0
    experts: Experts | None = None
    windowed: Windowed | None = None

    def __post_init__(self) -> None:
        free = {"base", "reduce_seconds", "other_layers", "state_bytes"}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("name", "experts", "windowed"):
                continue
            if not (value > 0 or (value == 0 and item.name in free)):
                raise ValueError(
                    f"roofline {self.name!r}: {item.name} must be positive, got {value!r}"
                )

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        devices = self.devices
        weights = self.weight_bytes
        held = step.context * self.kv_bytes + 2 * step.sequences * self.state_bytes
        pairs = self.layers * step.pairs
        if self.experts is not None:
            weights += self.experts.read(step.tokens)
        if self.windowed is not None:
            held += step.windowed * self.windowed.kv_bytes
            pairs += self.windowed.layers * step.windowed_pairs
        reading = weights / devices / self.bandwidth
        multiplying = 2 * self.parameters * step.tokens / devices / self.flops
        matrices = float((reading**CORNER + multiplying**CORNER) ** (1 / CORNER))
        context = held / devices / self.bandwidth
        attention = 4 * self.width * pairs / devices / (ATTENTION * self.flops)
        return self.base + matrices + context + attention + self._reducing(step.tokens)

    @property
    def ridge(self) -> float:
        """Return the query tokens at which multiplying takes as long as reading all weights."""
        weights = self.weight_bytes + (0.0 if self.experts is None else self.experts.bytes)
        return weights / self.bandwidth * self.flops / (2 * self.parameters)

    def _reducing(self, tokens: int) -> float:
        """Return the seconds of all-reduces; a ring moves 2 (k - 1)/k of the bytes per device."""
        if self.devices == 1:
            return 0.0
        carried = 2 * (self.devices - 1) / self.devices * tokens * self.hidden * ACTIVATION_BYTES
        once = self.reduce_seconds + carried / self.reduce_bandwidth
        return REDUCES * (self.layers + self.other_layers) * once


BYTES = 2
"""The size of a weight and of a number in the KV cache: bfloat16 or float16."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only transformer whose MLP has three matrices (Llama, Vicuna, Qwen 3).

    The fields are those of its `config.json`: layers, hidden size, attention heads, KV heads, head
    size, intermediate size, vocabulary. Input and output embedding are two matrices.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int

    @property
    def matrices(self) -> int:
        """Return the parameters that a token is multiplied with, including the output embedding."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.inner
        return self.layers * layer + self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """Return the parameters in memory without norms and biases, which are few."""
        return self.matrices + self.hidden * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of a token's keys and values in all layers."""
        return 2 * BYTES * self.layers * self.kv_heads * self.head_size


@dataclass(frozen=True, slots=True)
class Device:
    """A device: usable memory in bytes, reached bytes and FLOP per second, and communication.

    `base` is t0 of the roofline. `link` is the rate of the link to the host in bytes per second, in
    both directions together. An all-reduce takes `reduce_seconds` and the time of its bytes at
    `reduce_bandwidth`.
    """

    memory: float
    bandwidth: float
    flops: float
    base: float
    link: float
    reduce_seconds: float = 0.0
    reduce_bandwidth: float = inf


USED = 0.9
"""vLLM's `gpu_memory_utilization`."""

WORKSPACE = 2e9
"""Bytes for activations and captured graphs, assumed; see the test against what vLLM reported."""


def kv_tokens(model: Decoder, device: Device, devices: int = 1) -> int:
    """Return the tokens of the KV cache, which gets the memory beside weights and workspace.

    Raises `ValueError` if the model does not fit.
    """
    left = USED * device.memory - BYTES * model.parameters / devices - WORKSPACE
    if left <= 0:
        raise ValueError(
            f"the weights do not fit into {devices} x {device.memory / 1e9:g} GB: use more devices"
        )
    return int(left * devices / model.kv_bytes)


def roofline(name: str, model: Decoder, device: Device, devices: int = 1) -> Roofline:
    """Return the latency model of a model on `devices` devices."""
    return Roofline(
        name=name,
        weight_bytes=BYTES * model.matrices,
        parameters=model.matrices,
        layers=model.layers,
        width=model.heads * model.head_size,
        hidden=model.hidden,
        kv_bytes=model.kv_bytes,
        bandwidth=device.bandwidth,
        flops=device.flops,
        base=device.base,
        devices=devices,
        reduce_seconds=device.reduce_seconds,
        reduce_bandwidth=device.reduce_bandwidth,
    )


LLAMA_2_7B = Decoder(32, 4096, 32, 32, 128, 11008, 32_000)
LLAMA_2_13B = Decoder(40, 5120, 40, 40, 128, 13824, 32_000)
LLAMA_2_70B = Decoder(80, 8192, 64, 8, 128, 28672, 32_000)
LLAMA_3_1_8B = Decoder(32, 4096, 32, 8, 128, 14336, 128_256)
QWEN_3_32B = Decoder(64, 5120, 64, 8, 128, 25600, 151_936)

# An 80 GB card has 79.2 GiB for its user. Both devices are assumed to reach 84 % of their peak
# memory bandwidth, as the 40 GB card does (1.3 of 1.555 TB/s). The second factor of FLOP/s is the
# MFU, the reached share of the peak in bfloat16 without sparsity.
A100_80G = Device(85.0e9, 0.84 * 2.039e12, 0.65 * 312e12, 4e-3, 20e9, 15e-6, 200e9)
"""SXM: HBM2e, PCIe 4 (20 GB/s of 32 reached); NVLink 3, assumed: 15 us and 200 of 300 GB/s.

MFU and t0 are chosen for what SamuLLM's authors timed with Llama 2 7B and 13B (the execution of
the model; see `benchmarks/papers/samullm_fit.py`): mean relative errors of 0.14 and 0.17 in
prefills, 0.11 and 0.09 in decodes.
"""

H100_80G = Device(85.0e9, 0.84 * 3.35e12, 0.5 * 989e12, 1.5e-3, 40e9, 10e-6, 300e9)
"""SXM: HBM3, PCIe 5 (40 GB/s of 64 reached); NVLink 4, assumed: 10 us and 300 of 450 GB/s.

None of this is measured. Half of the peak FLOP/s is assumed, and half of the t0 of an A100 with
40 GB, since vLLM now schedules a step while another one runs.
"""
