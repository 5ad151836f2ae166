"""Heads that copy by four tokens of context, so that repeated digits and words do not mislead them.

A head that looks for the places where the last one or two tokens stood before finds several in a
number such as 78268267 or a file name such as 9a79a7ea, and then copies from the wrong one. These
heads compare the last four tokens. Each token has a short code in coordinates of its own:

- the first layer writes the codes of the tokens one and two places back,
- the second layer those three and four places back, and already compares two,
- the third layer compares all four and copies the token that follows.

What is copied goes the way that the second layer's first heads write it, which the layers after
them understand already. So the heads can be added to a trained model (`grow.py`) as well as to a
fresh one (`start.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tokenizer import bare
from transformers import LlamaForCausalLM

FIRST = 256  # the first coordinate of the codes: those before it are the old model's
CODE = 12  # coordinates of a code, in three parts of four
CONSTANT = FIRST + 5 * CODE  # the coordinate that is the same for every token
HEAD, HALF = 64, 32
SHARE = 0.1  # length of a code, relative to the token's embedding
FAST = 8  # rotary frequencies that tell neighbouring positions apart
PEAK = 60.0  # score of the position that a head looks back to
TRIES = 64  # directions that are tried for each part of a code

# Which coordinates of a code are compared, how many tokens back, and what a match counts.
Compared = tuple[tuple[int, int, float], ...]
TWO: Compared = ((0, 12, 9.0), (0, 12, 6.0))
FOUR: Compared = ((0, 12, 9.0), (0, 8, 5.0), (0, 4, 4.0), (4, 8, 3.0))
FOUR_AGAIN: Compared = ((0, 8, 9.0), (8, 12, 4.0), (0, 8, 5.0), (0, 8, 4.0))


def codes(texts: Sequence[str], seed: int = 0) -> torch.Tensor:
    """Return unit codes of the tokens, of shape (tokens, 12), the first ones far apart.

    texts: the tokens in the order of their ids. Those that differ only in the space before them
    share a code. The first ones are the special tokens and the single characters, which repeat
    most.
    """
    places = {text: at for at, text in enumerate(dict.fromkeys(map(bare, texts)))}
    apart = _apart(len(places), torch.Generator().manual_seed(seed))
    return apart[[places[bare(text)] for text in texts]]


def _apart(count: int, generator: torch.Generator) -> torch.Tensor:
    found = torch.zeros(count, 3, CODE // 3)
    for token in range(count):
        tries = torch.randn(TRIES, 3, CODE // 3, generator=generator)
        tries = tries / tries.norm(dim=-1, keepdim=True)
        if token:
            near = torch.einsum("apd,bpd->pab", tries, found[:token])
            worst = near.amax(dim=2)  # of each part, over the tokens before
            best = worst.argmin(dim=1) if token < 100 else near.mean(0).amax(1).argmin().repeat(3)
            found[token] = tries[best, torch.arange(3)]
        else:
            found[token] = tries[0]
    return found.reshape(count, CODE) / math.sqrt(3)


def at(back: int) -> int:
    """Return the first coordinate of the code of the token ``back`` places before."""
    return FIRST + CODE * back


def _clear(attention: torch.nn.Module, head: int) -> None:
    rows = slice(HEAD * head, HEAD * (head + 1))
    for part in (attention.q_proj, attention.k_proj, attention.v_proj):
        part.weight[rows] = 0
    attention.o_proj.weight[:, rows] = 0


def look_back(attention: torch.nn.Module, head: int, places: int, constant: float) -> None:
    """Make a head attend to the token ``places`` back.

    constant: the value of the constant coordinate in what the layer reads.
    """
    _clear(attention, head)
    strength = math.sqrt(PEAK * math.sqrt(HEAD) / FAST) / constant
    for index in range(FAST):
        angle = places * 10000 ** (-index / HALF)
        row = HEAD * head + index
        attention.q_proj.weight[row, CONSTANT] = strength
        attention.k_proj.weight[row, CONSTANT] = strength * math.cos(angle)
        attention.k_proj.weight[row + HALF, CONSTANT] = strength * math.sin(angle)


def carry(
    attention: torch.nn.Module, head: int, sources: list[int], places: int, gain: float
) -> None:
    """Make a head copy codes to those of the tokens ``places`` further back."""
    row = HEAD * head
    for back in sources:
        for index in range(CODE):
            attention.v_proj.weight[row, at(back) + index] = 1
            attention.o_proj.weight[at(back + places) + index, row] = gain
            row += 1


def compare(attention: torch.nn.Module, head: int, compared: Compared, length: float) -> None:
    """Make a head look for the places after the tokens that came last.

    length: the length of a code in what the layer reads.
    """
    _clear(attention, head)
    # The slowest rotary frequencies disturb a comparison least: the first token gets these.
    slow = [row for index in range(HALF - 1, 0, -1) for row in (index, index + HALF)]
    for back, (begin, end, score) in enumerate(compared):
        part = length * math.sqrt((end - begin) / CODE)
        strength = math.sqrt(score * math.sqrt(HEAD)) / part
        for index in range(begin, end):
            row = HEAD * head + slow.pop(0)
            attention.q_proj.weight[row, at(back) + index] = strength
            attention.k_proj.weight[row, at(back + 1) + index] = strength


def write_like(model: LlamaForCausalLM, layer: int, head: int, other: int, gain: float) -> None:
    """Make a head copy what a head of the second layer copies, ``gain`` times as much."""
    source, target = model.model.layers[1], model.model.layers[layer]
    rows, old = (slice(HEAD * each, HEAD * (each + 1)) for each in (head, other))
    scale = source.input_layernorm.weight / target.input_layernorm.weight.clamp(min=1e-3)
    target.self_attn.v_proj.weight[rows] = source.self_attn.v_proj.weight[old] * scale
    target.self_attn.v_proj.weight[rows, FIRST:] = 0
    target.self_attn.o_proj.weight[:, rows] = gain * source.self_attn.o_proj.weight[:, old]


@torch.no_grad()
def lengths(model: LlamaForCausalLM, sample: torch.Tensor) -> list[float]:
    """Return the root mean square of what reaches each layer, over the tokens of a sample."""
    states = model.model(input_ids=sample, output_hidden_states=True).hidden_states
    return [state.pow(2).mean(-1).sqrt().mean().item() for state in states[:-1]]


@torch.no_grad()
def write(model: LlamaForCausalLM, texts: Sequence[str], sample: torch.Tensor, gain: float) -> None:
    """Write the codes and the heads 4 and 5 of each layer into a model of width 336.

    texts: the tokens in the order of their ids. sample: ids of shape (1, tokens), on which the
    sizes are measured. gain: how strongly what the new heads copy counts beside what the old ones
    do.
    """
    table = model.get_input_embeddings().weight
    size = table[:, :FIRST].norm(dim=1, keepdim=True)
    table[:, FIRST:] = 0
    table[:, FIRST : FIRST + CODE] = SHARE * size * codes(texts).to(table)
    table[:, CONSTANT] = SHARE * size[:, 0]
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[FIRST:] = 0
        layer.mlp.down_proj.weight[FIRST:] = 0
        for head in (4, 5):
            _clear(layer.self_attn, head)
        layer.input_layernorm.weight[FIRST:] = 1
        layer.post_attention_layernorm.weight[FIRST:] = 1
    model.model.norm.weight[FIRST:] = 0
    raw = SHARE * size.mean().item()
    seen = [raw / length for length in lengths(model, sample)]
    first, second, third, fourth = (layer.self_attn for layer in model.model.layers)
    for head, places in ((4, 1), (5, 2)):
        look_back(first, head, places, seen[0])
        carry(first, head, [0], places, raw / seen[0])
    look_back(second, 4, 2, 0.75 * seen[1])
    carry(second, 4, [1, 2], 2, raw / seen[1])
    compare(second, 5, TWO, seen[1])
    write_like(model, 1, 5, 2, gain / 2)
    for attention, layer, part in ((third, 2, gain), (fourth, 3, 0.0)):
        length = seen[layer] * (0.9 if layer == 2 else 0.75)
        compare(attention, 4, FOUR, length)
        compare(attention, 5, FOUR_AGAIN, length)
        write_like(model, layer, 4, 0, part)
        write_like(model, layer, 5, 1, part)
