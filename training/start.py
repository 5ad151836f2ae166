"""Weights to start from: random, except that a few heads already copy.

Nearly all that caesura-tiny has to learn is copying: digits into expressions, results into answers.
Gradient descent finds the two heads that copying takes (one that looks at the token before, one
that finds where the current token stood before) only after thousands of steps, which is most of the
training. So they are written into the first two layers by hand; everything stays trainable.

The residual stream is divided for the start: coordinates 0 to 126 hold the token, 127 is the same
for every token, 128 to 191 the token before, 192 to 255 the one before that.
"""

from __future__ import annotations

import math

import torch
from transformers import LlamaForCausalLM

SCALE = 0.05  # standard deviation of the embeddings
CONSTANT = 127
BEFORE, EARLIER = 128, 192  # where the tokens one and two places back are written
FAST = 8  # rotary frequencies that tell neighbouring positions apart
SLOW = 16  # from this frequency on, rotation is too slow to disturb a match


def _look_back(attention: torch.nn.Module, head: int, places: int, target: int) -> None:
    """Make a head of the first layer copy the token ``places`` back to ``target``."""
    at, half = 64 * head, 32
    strength = math.sqrt(40) / math.sqrt(CONSTANT)
    for part in (attention.q_proj, attention.k_proj):
        part.weight[at : at + 64] = 0
    for index in range(FAST):
        angle = places * 10000 ** (-index / half)
        attention.q_proj.weight[at + index, CONSTANT] = strength
        attention.k_proj.weight[at + index, CONSTANT] = strength * math.cos(angle)
        attention.k_proj.weight[at + half + index, CONSTANT] = strength * math.sin(angle)
    _carry(attention, head, 0, target, SCALE)


def _carry(attention: torch.nn.Module, head: int, source: int, target: int, gain: float) -> None:
    """Make a head add coordinates of what it attends to, from ``source`` on, at ``target``."""
    at = 64 * head
    width = min(64, CONSTANT - source)
    attention.v_proj.weight[at : at + 64] = 0
    attention.o_proj.weight[:, at : at + 64] = 0
    for index in range(width):
        attention.v_proj.weight[at + index, source + index] = 1
        attention.o_proj.weight[target + index, at + index] = gain


def _match(
    attention: torch.nn.Module, head: int, pairs: list[tuple[int, int]], source: int
) -> None:
    """Make a head look for keys that equal the query in pairs of 16 coordinates, and copy them."""
    at, strength = 64 * head, 2.1
    for part in (attention.q_proj, attention.k_proj):
        part.weight[at : at + 64] = 0
    for (query, key), start in zip(pairs, (SLOW, 32 + SLOW), strict=True):
        for index in range(16):
            attention.q_proj.weight[at + start + index, query + index] = strength
            attention.k_proj.weight[at + start + index, key + index] = strength
    _carry(attention, head, source, source, 2.5 * SCALE)


@torch.no_grad()
def prepare(model: LlamaForCausalLM) -> None:
    """Write the copying heads into a freshly made model."""
    embeddings = model.get_input_embeddings().weight
    embeddings.normal_(0, SCALE)
    embeddings[:, CONSTANT + 1 :] = 0
    # Tied weights: a constant coordinate adds the same to every logit and so changes nothing.
    embeddings[:, CONSTANT] = SCALE * math.sqrt(CONSTANT)
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.mul_(0.3)
        layer.self_attn.o_proj.weight.mul_(0.3)
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _look_back(first, 0, 1, BEFORE)
    _look_back(first, 1, 2, EARLIER)
    _match(second, 0, [(0, BEFORE), (16, BEFORE + 16)], 0)
    _match(second, 1, [(32, BEFORE + 32), (48, BEFORE + 48)], 64)
    _match(second, 2, [(0, BEFORE), (BEFORE, EARLIER)], 32)
