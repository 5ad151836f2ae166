"""The simulated machine: the time of steps and copies, and the sizes of its memories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.costs import CostModel

BLOCK_TOKENS = 16
"""The default tokens of a block of KV cache, as in vLLM."""


@dataclass(frozen=True, slots=True)
class KVLayers:
    """`count` layers of one kind, and what each of them keeps of a request on one device.

    Attention keeps `token_bytes` of each token, or of the last `window` tokens if that is not 0.
    Recurrent layers (linear attention, Mamba) keep a state of `state_bytes`, however long the
    context is. With `saves_inside`, a step can save the state at a block's end within it, as vLLM's
    Mamba-2 layers do; other layers save it where a step ends. Raises `ValueError` unless the layers
    keep either tokens or a state.
    """

    count: int
    token_bytes: int = 0
    window: int = 0
    state_bytes: int = 0
    saves_inside: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 or (self.token_bytes > 0) == (self.state_bytes > 0):
            raise ValueError(f"layers must be some that keep either tokens or a state, got {self}")


@dataclass(frozen=True, slots=True)
class StepShape:
    """The work of a step.

    The step has `tokens` query tokens of `sequences` requests; `decodes` of these decode one token
    each. `context` are the tokens of context that the batch holds after the step; attention reads
    each once. `longest` is the longest context of the batch. `pairs` counts the query-key pairs of
    prefilling requests: query tokens times the context that they see on average.

    Where layers have a window, `windowed` and `windowed_pairs` are `context` and `pairs` as these
    layers see them: of each context its last tokens only.
    """

    tokens: int
    sequences: int
    decodes: int
    context: int
    longest: int
    pairs: float
    windowed: int = 0
    windowed_pairs: float = 0.0


def pairs_within(window: int, start: int, end: int) -> float:
    """Return the query-key pairs of the tokens after `start` up to `end`, each with its window."""
    inside, before = min(end, window), min(start, window)
    ramp = (inside * (inside + 1) - before * (before + 1)) / 2
    return ramp + window * (max(0, end - window) - max(0, start - window))


class LatencyModel(Protocol):
    """The duration of steps on a machine."""

    @property
    def name(self) -> str:
        """Return the name of the modelled machine."""
        ...

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a device.

    `kv_tokens` is the size of the KV cache and `kv_bytes` the size of a token's KV on one device,
    in the layers of full attention. If there are others, `layers` has all kinds, that of full
    attention first, and they share the `kv_tokens` x `kv_bytes` bytes of the cache.
    `host_bytes` is the host memory for copies. The link carries `link_bytes` per second, in both
    directions together unless `full_duplex`. Copies beside a step slow it down by the share
    `interference`. `cost` is the cost model that a calibration on this machine would find.
    `block_tokens` is the number of tokens in a block of KV cache.

    Raises `ValueError` for blocks of less than one token, and for blocks of a recurrent model that
    are shorter than vLLM makes them.
    """

    name: str
    latency: LatencyModel
    kv_tokens: int
    kv_bytes: int
    host_bytes: int
    link_bytes: float
    cost: CostModel
    full_duplex: bool = False
    interference: float = 0.0
    block_tokens: int = BLOCK_TOKENS
    layers: tuple[KVLayers, ...] = ()

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise ValueError(f"a block must hold at least 1 token, got {self.block_tokens}")
        least = block_tokens_of(self.layers) if self.layers else 1
        if self.block_tokens < least:
            raise ValueError(
                f"a block of {self.name} must hold the state of a layer, so at least {least}"
                f" tokens, got {self.block_tokens}"
            )

    @property
    def window(self) -> int:
        """Return the window of the layers that have one, in tokens; 0 without."""
        return max((some.window for some in self.layers), default=0)


def block_tokens_of(layers: Sequence[KVLayers]) -> int:
    """Return the tokens of a block as vLLM chooses them for these layers.

    A block is as large as a state in a recurrent layer, in steps of `BLOCK_TOKENS` tokens: vLLM's
    platforms enlarge a block of attention and pad the state (`_align_hybrid_block_size`).
    """
    states = [some.state_bytes for some in layers if some.state_bytes]
    if not states:
        return BLOCK_TOKENS
    smallest = BLOCK_TOKENS * max(some.token_bytes for some in layers)
    return BLOCK_TOKENS * -(-max(states) // smallest)
