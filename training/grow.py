"""Brings a trained model to the present shape and tokenizer, for training to go on.

``python training/grow.py OLD NEW`` reads the model directory OLD and writes NEW. A model of width
256 gets the copying heads of `deep.py`, and every model the tokens that `tokenizer.alike` adds. The
new coordinates are small, what the new heads copy counts little at first, and a new token begins as
the one with a space before it. So the new model soon answers as the old one does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import deep
import tokenizer as bpe
import torch
from tokenizers import Tokenizer
from train import config, save
from transformers import LlamaForCausalLM

GAIN = 0.2


@torch.no_grad()
def widened(old: LlamaForCausalLM, vocabulary: int) -> LlamaForCausalLM:
    """Return a model of the present shape with the old weights; all that is new is zero."""
    new = LlamaForCausalLM(config(vocabulary))
    fitting = dict(old.named_parameters())
    # A norm divides by the mean over all coordinates, of which the new ones are nearly zero.
    scale = (old.config.hidden_size / new.config.hidden_size) ** 0.5
    for name, weight in new.named_parameters():
        source = fitting[name]
        weight.zero_()
        weight[tuple(slice(size) for size in source.shape)] = (
            source * scale if source.dim() == 1 else source
        )
    return new


@torch.no_grad()
def fill(table: torch.Tensor, texts: list[str], known: int) -> None:
    """Fill the rows of the new tokens, and share the codes of tokens that differ in a space.

    table: the embeddings, of shape (tokens, width), of which the first ``known`` are trained.
    """
    place = {text: number for number, text in enumerate(texts)}
    pairs = [(place[bpe.bare(text)], number) for text, number in place.items()
             if bpe.bare(text) != text]  # fmt: skip
    both = [(plain, spaced) for plain, spaced in pairs if plain < known]
    difference = torch.stack([table[plain] - table[spaced] for plain, spaced in both]).mean(0)
    for plain, spaced in pairs:
        if plain >= known:
            table[plain] = table[spaced] + difference
            table[plain, deep.FIRST :] = table[spaced, deep.FIRST :]
        else:
            table[spaced, deep.FIRST :] = table[plain, deep.FIRST :]


def main() -> None:
    """Read, bring to the present shape and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="model directory to read")
    parser.add_argument("new", type=Path, help="model directory to write")
    parser.add_argument("--gain", type=float, default=GAIN, help="weight of the new heads")
    options = parser.parse_args()
    known = Tokenizer.from_file(str(options.old / "tokenizer.json"))
    tokens = bpe.alike(known)
    old = LlamaForCausalLM.from_pretrained(options.old, dtype=torch.float32)
    new = widened(old, tokens.get_vocab_size())
    texts = bpe.texts(tokens)
    fill(new.get_input_embeddings().weight, texts, known.get_vocab_size())
    if old.config.hidden_size < new.config.hidden_size:
        deep.write(new, texts, torch.tensor([bpe.sample(tokens)]), options.gain)
    save(new, tokens, options.new)


if __name__ == "__main__":
    main()
