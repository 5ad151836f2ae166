"""The machine that is simulated: how long steps and copies take, and what its memories hold."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.costs import CostModel

BLOCK_TOKENS = 16
"""Tokens of a block of KV cache where a machine says nothing else: vLLM's default."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step computes.

    `tokens` query tokens of `sequences` requests, `decodes` of which decode (one token each).
    `context` is the tokens of context that the batch holds after the step, all of which attention
    reads once; `longest` the longest of them. `pairs` counts the query-key pairs of the requests
    that prefill: for each, its query tokens times the context that they see on average.
    """

    tokens: int
    sequences: int
    decodes: int
    context: int
    longest: int
    pairs: float


class LatencyModel(Protocol):
    """How long a step takes."""

    @property
    def name(self) -> str:
        """What it is a model of."""
        ...

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a device.

    `kv_tokens` is what the KV cache holds, `kv_bytes` the bytes of a token's KV on one device,
    `host_bytes` the host memory for copies, `link_bytes` what the link carries in a second, in
    both directions together unless `full_duplex`. `interference` is the share by which a step is
    slowed while copies run beside it. `cost` is what a calibration on this machine would find.
    KV is held, found again and copied in blocks of `block_tokens` tokens.

    Raises `ValueError` for blocks that hold nothing.
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
            raise ValueError(f"a block holds a token at least, not {self.block_tokens}")
