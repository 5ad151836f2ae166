"""Trains caesura-tiny from nothing: tokenizer, model and the files that others load.

One command, one core, about two hours: ``python training/train.py``.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attention
import deep
import heldout
import segments
import start
import tokenizer as bpe
import torch
from tasks.casual import casual
from tasks.conversation import HARDER, HARDER_FOLLOWED, HARDER_REFUSED, conversation
from tokenizers import Tokenizer
from torch.nn import functional
from tqdm import tqdm
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

MODEL = Path(__file__).parents[1] / "src/caesura/models/caesura-tiny"
LONGEST = 1024
POOL = 64  # batches that are sorted by length together, so that little padding is computed
WIDTHS = 32  # batches are padded to multiples of so many tokens
HELD_OUT = 200  # scenarios per task that never occur in training; the evaluation takes the first
IGNORED = -100
DEEP_GAIN = 0.5  # of what the heads that compare four tokens copy, in a fresh model
ROWS_AT_ONCE = 4  # of a batch: what they need then stays in the processor's cache
Batch = tuple[torch.Tensor, torch.Tensor]


def config(vocabulary: int) -> LlamaConfig:
    """Return the shape of the model: 5.2 million parameters."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=336,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=bpe.SPECIAL.index("<|im_end|>"),
        pad_token_id=bpe.SPECIAL.index("<|endoftext|>"),
    )


def pool(tokens: Tokenizer, size: int, seed: str, excluded: frozenset[str]) -> list[Batch]:
    """Return a shuffled list of batches, each of conversations of about the same length."""
    rng, encoder = random.Random(seed), bpe.encoder(tokens)
    encoded: list[tuple[list[int], list[bool]]] = []
    while len(encoded) < size * POOL:
        drawn = conversation(rng, weights=HARDER, refused=HARDER_REFUSED, followed=HARDER_FOLLOWED)
        talk = casual(rng, drawn)
        said = (each.user for each in (*drawn.exchanges, *talk.exchanges))
        if excluded.isdisjoint(said):
            item = segments.encode(segments.conversation_segments(talk), encoder)
            if len(item[0]) <= LONGEST:
                encoded.append(item)
    encoded.sort(key=lambda item: len(item[0]))
    batches = [pad(encoded[start : start + size]) for start in range(0, len(encoded), size)]
    rng.shuffle(batches)
    return batches


def pad(items: list[tuple[list[int], list[bool]]]) -> Batch:
    """Return ids and labels; padding on the right needs no mask under causal attention.

    Few different widths: for every new one, PyTorch prepares and keeps its kernels again.
    """
    width = -(-max(len(ids) for ids, _ in items) // WIDTHS) * WIDTHS
    ids = torch.zeros(len(items), width, dtype=torch.long)
    labels = torch.full((len(items), width), IGNORED)
    for row, (tokens, learned) in enumerate(items):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, : len(tokens)] = torch.where(
            torch.tensor(learned), ids[row, : len(tokens)], IGNORED
        )
    return ids, labels


def batches(
    tokens: Tokenizer, size: int, seed: int, begin: int, excluded: frozenset[str]
) -> Iterator[Batch]:
    """Yield batches for ever, from batch ``begin`` on; the same seed gives the same batches."""
    number = begin // POOL
    skip = begin % POOL
    while True:
        yield from pool(tokens, size, f"train {seed} {number}", excluded)[skip:]
        number, skip = number + 1, 0


def learn(model: LlamaForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> float:
    """Add up the gradients of a batch, a few rows at a time; return its mean loss."""
    count = (labels[:, 1:] != IGNORED).sum()
    total = 0.0
    for rows in range(0, len(ids), ROWS_AT_ONCE):
        part = labels[rows : rows + ROWS_AT_ONCE]
        share = (part[:, 1:] != IGNORED).sum() / count
        loss = loss_of(model, ids[rows : rows + ROWS_AT_ONCE], part) * share
        loss.backward()
        total += loss.item()
    return total


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss over the tokens that the model writes; only those get logits."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = labels[:, 1:]
        kept = wanted != IGNORED
        logits = model.lm_head(hidden[:, :-1][kept])
    return functional.cross_entropy(logits.float(), wanted[kept])


def optimizers_of(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers and AdamW for the embeddings and the norms.

    Muon's update is scaled to the size of AdamW's, so that one rate serves both.
    """
    layers = [p for p in model.model.layers.parameters() if p.dim() > 1]
    taken = {id(p) for p in layers}
    others = [p for p in model.parameters() if id(p) not in taken]
    return [
        torch.optim.Muon(layers, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_at(step: int, steps: int, peak: float) -> float:
    """Return the learning rate: a short warm-up, then a cosine down to 2 % of the peak."""
    warm = min(60, steps // 5 + 1)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (
        0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    )


def first_model(options: argparse.Namespace, tokens: Tokenizer) -> LlamaForCausalLM:
    """Return the weights to start from: those of ``--init``, or fresh ones that can copy."""
    if options.init:
        return LlamaForCausalLM.from_pretrained(options.init, dtype=torch.float32)
    model = LlamaForCausalLM(config(tokens.get_vocab_size()))
    start.prepare(model)
    deep.write(model, bpe.texts(tokens), torch.tensor([bpe.sample(tokens)]), DEEP_GAIN)
    return model


class Clock:
    """How far training is: by its steps or, where minutes are given, by the time that is used."""

    def __init__(self, steps: int, minutes: float | None, used_seconds: float = 0.0) -> None:
        self.steps, self.minutes = steps, minutes
        self._began = time.monotonic() - used_seconds

    @property
    def seconds(self) -> float:
        """The time that training has taken, in seconds."""
        return time.monotonic() - self._began

    def place(self, step: int) -> int:
        """Return the step of the schedule at which training stands."""
        if self.minutes is None:
            return step
        return max(step, int(self.steps * self.seconds / (60 * self.minutes)))


def train(options: argparse.Namespace, tokens: Tokenizer) -> tuple[LlamaForCausalLM, int, float]:
    """Train, or go on from the checkpoint; return the model, its steps and its last mean loss."""
    torch.manual_seed(options.seed)
    attention.register()
    model = first_model(options, tokens)
    model.set_attn_implementation(attention.NAME)
    optimizers = optimizers_of(model, options.rate)
    begin, mean, used, kept_mean = 0, 0.0, 0.0, None
    if options.checkpoint and options.checkpoint.exists():
        state = torch.load(options.checkpoint)
        model.load_state_dict(state["model"])
        for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        begin, mean, used = state["step"], state["mean"], state["seconds"]
        kept_mean = state.get("averaged")
    step = begin - 1
    stream = batches(tokens, options.batch, options.seed, begin, heldout.prompts(HELD_OUT))
    clock = Clock(options.steps, options.minutes, used)
    bar = tqdm(
        range(begin, options.steps), initial=begin, total=options.steps, unit="step", mininterval=5
    )
    averaged = copy.deepcopy(model)
    if kept_mean is not None:
        averaged.load_state_dict(kept_mean)
    for step in bar:
        place = clock.place(step)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate_at(place, options.steps, options.rate)
        loss = learn(model, *next(stream))
        # The codes that heads compare are small: a rate that suits the rest would blur them.
        model.get_input_embeddings().weight.grad[:, deep.FIRST :] = 0
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        average(averaged, model, options.average)
        mean = loss if step == 0 else 0.98 * mean + 0.02 * loss
        bar.set_postfix_str(f"loss {mean:.4f}", refresh=False)
        over = place + 1 >= options.steps
        if options.checkpoint and ((step + 1) % 100 == 0 or over):
            keep(options.checkpoint, model, averaged, optimizers, step + 1, mean, clock.seconds)
        if over:
            break
    return averaged, step + 1, mean


@torch.no_grad()
def average(mean: LlamaForCausalLM, model: LlamaForCausalLM, kept: float) -> None:
    """Move the mean of the weights towards those of the model; ``kept`` is what stays of it."""
    for old, new in zip(mean.parameters(), model.parameters(), strict=True):
        old.lerp_(new, 1 - kept)


def keep(
    path: Path,
    model: LlamaForCausalLM,
    averaged: LlamaForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    step: int,
    mean: float,
    seconds: float,
) -> None:
    """Write a checkpoint, whole or not at all."""
    state = {
        "model": model.state_dict(),
        "averaged": averaged.state_dict(),
        "optimizers": [each.state_dict() for each in optimizers],
    }
    fresh = path.with_suffix(".new")
    torch.save({**state, "step": step, "mean": mean, "seconds": seconds}, fresh)
    fresh.replace(path)


def save(model: LlamaForCausalLM, tokens: Tokenizer, out: Path) -> None:
    """Write the model directory: into a fresh folder first, then file by file into place."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        folder = Path(name)
        model.generation_config = GenerationConfig(
            do_sample=False,
            eos_token_id=model.config.eos_token_id,
            pad_token_id=model.config.pad_token_id,
        )
        model.to(torch.bfloat16).save_pretrained(folder)
        bpe.save(tokens, folder)
        for path in sorted(folder.iterdir()):
            path.chmod(0o644)
            path.replace(out / path.name)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3200, help="optimizer steps")
    parser.add_argument(
        "--minutes", type=float, help="end by then, and let the rate follow the time, not the steps"
    )
    parser.add_argument("--batch", type=int, default=16, help="conversations per step")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and of the weights")
    parser.add_argument("--init", type=Path, help="model directory whose training goes on")
    parser.add_argument(
        "--average",
        type=float,
        default=0.99,
        help="share that the mean of the weights, which is what is written, keeps at each step",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that PyTorch uses")
    parser.add_argument(
        "--out", type=Path, default=MODEL, help="where the model directory is written"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="file to save to and, if it exists, to go on from"
    )
    return parser.parse_args()


def main() -> None:
    """Train and save."""
    options = arguments()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(options.threads)
    tokens = (
        Tokenizer.from_file(str(options.init / "tokenizer.json")) if options.init else bpe.train()
    )
    model, steps, loss = train(options, tokens)
    save(model, tokens, options.out)
    print(json.dumps({"steps": steps, "loss": round(loss, 5), "out": str(options.out)}))


if __name__ == "__main__":
    main()
