"""Models whose layers differ: windows, recurrent state, mixtures of experts, with public sizes.

The sizes are those of the models' `config.json` on Hugging Face; docs/study/simulator.md names
them. The numbers of parameters that follow from them are those that the models' authors state. All
times are derived from these sizes by the roofline of `analytic.py`. None is measured.
"""

from dataclasses import dataclass, field

from caesura.simulator.latency.analytic import (
    BYTES,
    USED,
    WORKSPACE,
    Device,
    Experts,
    Roofline,
    Windowed,
)
from caesura.simulator.machine import KVLayers


@dataclass(frozen=True, slots=True)
class Attention:
    """`layers` of attention with query heads and KV heads of `head_size` numbers.

    `window` is 0 for full attention. `gated`: a gate as wide as the queries is computed too.
    """

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    window: int = 0
    gated: bool = False

    def parameters(self, hidden: int) -> int:
        """Return the parameters of a layer."""
        queries = self.heads * (3 if self.gated else 2)
        return hidden * self.head_size * (queries + 2 * self.kv_heads)

    def token_bytes(self, devices: int = 1) -> int:
        """Return the bytes of a token's keys and values in a layer, on one of `devices`.

        Fewer heads than devices are on several of them.
        """
        return 2 * BYTES * max(1, self.kv_heads // devices) * self.head_size


@dataclass(frozen=True, slots=True)
class Recurrent:
    """`layers` that keep a state: that of the convolution, and that of the recurrence.

    `weights` are the parameters of a layer. `convolved` numbers of `BYTES` and `recurring` numbers
    of `number_bytes` are the states. `saves_inside` is as in `KVLayers`.
    """

    layers: int
    weights: int
    convolved: int
    recurring: int
    number_bytes: int
    saves_inside: bool = False

    @property
    def state_bytes(self) -> int:
        """Return the bytes of a layer's state, on all devices together."""
        return BYTES * self.convolved + self.number_bytes * self.recurring


def gated_delta_net(
    layers: int, hidden: int, key_heads: int, value_heads: int, size: int, kernel: int
) -> Recurrent:
    """Return Gated DeltaNet layers, whose states vLLM keeps in the model's own precision."""
    keys, values = key_heads * size, value_heads * size
    weights = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    convolved = (2 * keys + values) * (kernel - 1)
    return Recurrent(layers, weights, convolved, value_heads * size * size, BYTES)


def mamba_2(
    layers: int, hidden: int, heads: int, size: int, groups: int, state: int, kernel: int
) -> Recurrent:
    """Return Mamba-2 layers with states in single precision, as Nemotron's configurations say."""
    inner, shared = heads * size, 2 * groups * state
    weights = hidden * (2 * inner + shared + heads) + inner * hidden
    convolved = (inner + shared) * (kernel - 1)
    return Recurrent(layers, weights, convolved, inner * state, 4, saves_inside=True)


@dataclass(frozen=True, slots=True)
class Feed:
    """`layers` of MLPs of `matrices` matrices between `hidden` and `inner` numbers.

    With `experts`, there are so many of them in a layer, of which a token uses `chosen`, and
    `shared` is the inner size of one that all tokens use. Without, a token uses the only one.
    """

    layers: int
    inner: int
    matrices: int = 3
    experts: int = 1
    chosen: int = 1
    shared: int = 0

    def routed(self, hidden: int) -> int:
        """Return the parameters of all experts."""
        return self.layers * self.experts * self.matrices * hidden * self.inner

    def common(self, hidden: int) -> int:
        """Return the parameters of routers and shared experts."""
        router = self.experts if self.experts > 1 else 0
        return self.layers * hidden * (self.matrices * self.shared + router)


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A decoder whose layers differ.

    `weight_bytes` is the size of a parameter in memory, `expert_bytes` that of one of an expert;
    embeddings take `BYTES`. `tied`: input and output embedding are one matrix. `beside` are the
    bytes of parts that decoding does not use, such as a vision tower.
    """

    hidden: int
    vocabulary: int
    attention: tuple[Attention, ...]
    feed: Feed
    recurrent: Recurrent | None = None
    weight_bytes: float = BYTES
    expert_bytes: float = BYTES
    tied: bool = False
    beside: float = 0.0
    _mixing: int = field(init=False)

    def __post_init__(self) -> None:
        mixing = sum(some.layers * some.parameters(self.hidden) for some in self.attention)
        if self.recurrent is not None:
            mixing += self.recurrent.layers * self.recurrent.weights
        object.__setattr__(self, "_mixing", mixing)

    @property
    def embedding(self) -> int:
        """Return the parameters of one embedding."""
        return self.hidden * self.vocabulary

    @property
    def always(self) -> int:
        """Return the parameters that every token is multiplied with, without embeddings."""
        routed = 0 if self.feed.experts > 1 else self.feed.routed(self.hidden)
        return self._mixing + self.feed.common(self.hidden) + routed

    @property
    def routed(self) -> int:
        """Return the parameters of routed experts; 0 without."""
        return self.feed.routed(self.hidden) if self.feed.experts > 1 else 0

    @property
    def parameters(self) -> int:
        """Return all parameters, without norms, biases and convolutions, which are few."""
        return self.always + self.routed + self.embedding * (1 if self.tied else 2)

    @property
    def active(self) -> float:
        """Return the parameters that a token is multiplied with, with the output embedding."""
        share = self.feed.chosen / self.feed.experts
        return self.always + self.routed * share + self.embedding

    @property
    def bytes(self) -> float:
        """Return the bytes of all weights."""
        embeddings = BYTES * self.embedding * (1 if self.tied else 2)
        matrices = self.weight_bytes * self.always + self.expert_bytes * self.routed
        return matrices + embeddings + self.beside

    @property
    def full(self) -> Attention:
        """Return the layers of full attention."""
        return next(some for some in self.attention if not some.window)

    @property
    def windowed(self) -> Attention | None:
        """Return the attention layers with a window; None without."""
        return next((some for some in self.attention if some.window), None)

    def layers(self, devices: int = 1) -> tuple[KVLayers, ...]:
        """Return what the layers keep on one of `devices`, those of full attention first."""
        found = [
            KVLayers(some.layers, some.token_bytes(devices), some.window)
            for some in sorted(self.attention, key=lambda one: one.window)
        ]
        state = self.recurrent
        if state is not None:
            each = -(-state.state_bytes // devices)
            found.append(KVLayers(state.layers, state_bytes=each, saves_inside=state.saves_inside))
        return tuple(found)


def kv_memory(model: Hybrid, device: Device, devices: int = 1) -> float:
    """Return the bytes for the KV cache on one device, beside weights and workspace.

    Raises `ValueError` if the model does not fit.
    """
    left = USED * device.memory - model.bytes / devices - WORKSPACE
    if left <= 0:
        raise ValueError(
            f"the weights do not fit into {devices} x {device.memory / 1e9:g} GB: use more devices"
        )
    return left


def hybrid_roofline(name: str, model: Hybrid, device: Device, devices: int = 1) -> Roofline:
    """Return the latency model of a model on `devices` devices."""
    full, windowed, state = model.full, model.windowed, model.recurrent
    share = model.feed.chosen / model.feed.experts
    others = sum(some.layers for some in (windowed, state) if some is not None)
    return Roofline(
        name=name,
        weight_bytes=model.weight_bytes * model.always + BYTES * model.embedding,
        parameters=model.active,
        layers=full.layers,
        width=full.heads * full.head_size,
        hidden=model.hidden,
        kv_bytes=full.layers * full.token_bytes(devices) * devices,
        bandwidth=device.bandwidth,
        flops=device.flops,
        base=device.base,
        devices=devices,
        reduce_seconds=device.reduce_seconds,
        reduce_bandwidth=device.reduce_bandwidth,
        other_layers=others,
        state_bytes=0.0 if state is None else state.layers * state.state_bytes,
        experts=Experts(model.expert_bytes * model.routed, share) if model.routed else None,
        windowed=None
        if windowed is None
        else Windowed(windowed.layers, windowed.layers * windowed.token_bytes(devices) * devices),
    )


QWEN_3_NEXT_80B = Hybrid(
    hidden=2048,
    vocabulary=151_936,
    attention=(Attention(12, 16, 2, 256, gated=True),),
    feed=Feed(48, 512, experts=512, chosen=10, shared=512),
    recurrent=gated_delta_net(36, 2048, key_heads=16, value_heads=32, size=128, kernel=4),
    weight_bytes=1,
    expert_bytes=1,
)
"""Qwen3-Next 80B-A3B: 79.7 B parameters, in the 8 bits of its FP8 checkpoint.

Its 16 bits do not fit two H100. Their products are assumed to be as fast as those of 16 bits.
"""

GPT_OSS_120B = Hybrid(
    hidden=2880,
    vocabulary=201_088,
    attention=(Attention(18, 64, 8, 64), Attention(18, 64, 8, 64, window=128)),
    feed=Feed(36, 2880, experts=128, chosen=4),
    expert_bytes=4.25 / 8,
)
"""gpt-oss 120B: 116.8 B parameters, 5.1 B active, experts in MXFP4 (4.25 bits a weight)."""

NEMOTRON_3_NANO_30B = Hybrid(
    hidden=2688,
    vocabulary=131_072,
    attention=(Attention(6, 32, 2, 128),),
    feed=Feed(23, 1856, matrices=2, experts=128, chosen=6, shared=3712),
    recurrent=mamba_2(23, 2688, heads=64, size=64, groups=8, state=128, kernel=4),
)
"""Nemotron 3 Nano 30B-A3B in bfloat16: 31.6 B parameters, 3.2 B active."""

GEMMA_3_27B = Hybrid(
    hidden=5376,
    vocabulary=262_208,
    attention=(Attention(10, 32, 16, 128), Attention(52, 32, 16, 128, window=1024)),
    feed=Feed(62, 21_504),
    tied=True,
    beside=BYTES * 0.417e9,
)
"""Gemma 3 27B in bfloat16: 27.0 B parameters, and a vision tower of 417 M."""
