"""Attention for training on a CPU: in blocks of queries, each against the keys before its end.

PyTorch's own flash attention takes nearly half of a training step in bfloat16 on a CPU, since it
works in float32 inside. Blocks leave out most of what the causal mask hides and run as plain
matrix products in bfloat16: 1.7 times as fast for rows of 448 tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "blocks"
BLOCK_TOKENS = 128


def blocks(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float = 1.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Return causal attention, of shape (rows, tokens, heads, width), and no weights.

    query, key, value: of shape (rows, heads, tokens, width). Padding on the right needs no mask.
    """
    tokens = query.shape[2]
    query = query * scaling
    size = min(BLOCK_TOKENS, tokens)
    hidden = torch.full((size, size), float("-inf"), dtype=query.dtype).triu_(1)
    outputs = []
    for start in range(0, tokens, BLOCK_TOKENS):
        end = min(start + BLOCK_TOKENS, tokens)
        scores = query[:, :, start:end] @ key[:, :, :end].transpose(-1, -2)
        last = scores[..., start:] + hidden[: end - start, : end - start]
        scores = torch.cat((scores[..., :start], last), dim=-1) if start else last
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
        outputs.append(weights @ value[:, :, :end])
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def register() -> None:
    """Make the name known to transformers, for a model's ``set_attn_implementation``."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, blocks)
