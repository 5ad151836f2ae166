"""The simulated machine: the time of steps and copies, and the sizes of its memories."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.costs import CostModel

BLOCK_TOKENS = 16
"""The default tokens of a block of KV cache, as in vLLM."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """The work of a step.

    The step has `tokens` query tokens of `sequences` requests; `decodes` of these decode one token
    each. `context` are the tokens of context that the batch holds after the step; attention reads
    each once. `longest` is the longest context of the batch. `pairs` counts the query-key pairs of
    prefilling requests: query tokens times the context that they see on average.
    """

    tokens: int
    sequences: int
    decodes: int
    context: int
    longest: int
    pairs: float


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

    `kv_tokens` is the size of the KV cache and `kv_bytes` the size of a token's KV on one device.
    `host_bytes` is the host memory for copies. The link carries `link_bytes` per second, in both
    directions together unless `full_duplex`. Copies beside a step slow it down by the share
    `interference`. `cost` is the cost model that a calibration on this machine would find.
    `block_tokens` is the number of tokens in a block of KV cache.

    Raises `ValueError` for blocks of less than one token.
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

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise ValueError(f"a block must hold at least 1 token, got {self.block_tokens}")
