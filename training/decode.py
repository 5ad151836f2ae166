"""Greedy decoding of a batch on a CPU, without the copies that transformers' own loop makes.

That loop joins every cache with one more token at each step, and computes rows that have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer


class Reserved(DynamicLayer):
    """Keys and values of one layer in buffers that have room for the tokens to come."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.used = 0
        self.buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values into the buffers; return all of them."""
        if self.buffers is None:
            rows, heads, tokens, width = key_states.shape
            shape = (rows, heads, tokens + self.room, width)
            self.buffers = key_states.new_empty(shape), value_states.new_empty(shape)
            self.is_initialized = True
        start, self.used = self.used, self.used + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start : self.used] = states
        self.keys, self.values = (buffer[:, :, : self.used] for buffer in self.buffers)
        return self.keys, self.values

    def select(self, rows: torch.Tensor) -> None:
        """Keep only some rows of the batch."""
        if self.buffers is not None:
            self.buffers = self.buffers[0][rows], self.buffers[1][rows]
            self.keys, self.values = (buffer[:, :, : self.used] for buffer in self.buffers)


@torch.inference_mode()
def greedy(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    pad: int,
    stops: Sequence[list[int]],
    most: int,
) -> list[list[int]]:
    """Continue every prompt greedily, up to one of the stop sequences or ``most`` tokens."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    layers = [Reserved(most) for _ in range(model.config.num_hidden_layers)]
    cache = Cache(layers=layers)
    written: list[list[int]] = [[] for _ in prompts]
    running = list(range(len(prompts)))
    for _ in range(most):
        out = model(
            input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        ids = out.logits[:, -1].argmax(-1, keepdim=True)
        for row, token in zip(running, ids[:, 0].tolist(), strict=True):
            written[row].append(token)
        open_rows = [
            at
            for at, row in enumerate(running)
            if not any(written[row][-len(stop) :] == stop for stop in stops)
        ]
        if not open_rows:
            break
        places = places[:, -1:] + 1
        if len(open_rows) < len(running):
            rows = torch.tensor(open_rows)
            running = [running[at] for at in open_rows]
            ids, mask, places = ids[rows], mask[rows], places[rows]
            for layer in layers:
                layer.select(rows)
        mask = torch.cat((mask, mask.new_ones(len(mask), 1)), dim=1)
    return written
