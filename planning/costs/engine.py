"""What an engine of a model costs at one tensor-parallel size: time, memory and FLOPs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caesura.planning.plan import Placement
from caesura.simulator.machine import BLOCK_TOKENS, LatencyModel, StepShape

Array = NDArray[np.float64]

MOST_RUNNING = 256
"""The default of vLLM's `max_num_seqs`."""

CHUNK_TOKENS = 2048
"""The default of vLLM's `max_num_batched_tokens`."""


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs of a model on all its devices together (SamuLLM, equations 1 and 2).

    `per_token` is L c, with c as 2 FLOPs per weight of a layer's matrices, and `per_pair` is 2 L h:
    an attended pair of a query and a key takes this much.
    """

    per_token: float
    per_pair: float

    def of(self, prompts: Array, decoded: Array) -> Array:
        """Return the FLOPs (n,) of prompts (n,) in tokens, and of the tokens (n,) behind them.

        The prefill gives the first token, and each decode attends to all tokens before it. A
        request without a token has none.
        """
        decodes = np.maximum(0.0, decoded - 1)
        prefill = self.per_token * prompts + self.per_pair * prompts**2.0
        pairs = decodes * prompts + decodes * (decodes + 1) / 2
        decode = self.per_token * decodes + self.per_pair * pairs
        return np.where(decoded > 0, prefill + decode, 0.0)


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """An engine of a model on the devices of one tensor-parallel size.

    `room` are the bytes of a device for weights and KV cache, `weight_bytes` those of the weights
    on a device, and `kv_bytes` those of a token's KV on a device. `longest` is l_max, the tokens of
    the longest context. `load_seconds` pass until a started engine answers, and `stop_seconds`
    until the devices of a stopped one are free. A step has at most `chunk_tokens` query tokens of
    `most_running` requests. `kv_given` are the bytes of the KV cache on each device where a
    placement does not say them; 0: all that the weights leave. With `kv_fixed` no placement can say
    them, since the model's arguments do. An engine that sleeps instead of ending leaves its devices
    after `sleep_seconds`, and answers again after `wake_seconds`; None: engines end.
    """

    latency: LatencyModel
    room: float
    weight_bytes: float
    kv_bytes: int
    longest: int
    flops: Flops
    load_seconds: float = 0.0
    stop_seconds: float = 0.0
    block_tokens: int = BLOCK_TOKENS
    most_running: int = MOST_RUNNING
    chunk_tokens: int = CHUNK_TOKENS
    kv_given: int = 0
    kv_fixed: bool = False
    sleep_seconds: float | None = None
    wake_seconds: float | None = None

    @property
    def leave_seconds(self) -> float:
        """Return the seconds until the devices of an evicted engine are free."""
        return self.stop_seconds if self.sleep_seconds is None else self.sleep_seconds

    def kv_room(self, placement: Placement) -> float:
        """Return the bytes of KV cache on each device: what is given, or what weights leave."""
        given = 0 if self.kv_fixed else placement.kv_bytes
        return float(given or self.kv_given or self.room - self.weight_bytes)

    def kv_tokens(self, placement: Placement) -> int:
        """Return the tokens that its KV cache holds, in whole blocks."""
        tokens = int(max(0.0, self.kv_room(placement)) // self.kv_bytes)
        return tokens // self.block_tokens * self.block_tokens

    def held(self, placement: Placement) -> float:
        """Return the bytes that it takes of each device."""
        return self.weight_bytes + max(0.0, self.kv_room(placement))

    def valid(self, placement: Placement) -> bool:
        """Return whether a device holds its weights, and the KV of one longest request.

        SamuLLM, section 3; vLLM refuses to start with less.
        """
        fits = self.held(placement) <= self.room
        return fits and self.kv_tokens(placement) >= self.longest

    def alone_seconds(self, prompt_tokens: int, output_tokens: float) -> float:
        """Return the seconds of a request that runs alone: its prefill, and a mean of decodes."""
        pairs = prompt_tokens * (prompt_tokens + 1) / 2
        prefill = StepShape(prompt_tokens, 1, 0, prompt_tokens, prompt_tokens, pairs)
        held = prompt_tokens + round(output_tokens / 2)
        decode = self.latency.seconds(StepShape(1, 1, 1, held, held, 0.0))
        return self.latency.seconds(prefill) + max(0.0, output_tokens - 1) * decode
