"""Make small models of clearly different sizes, with random weights and the bundled tokenizer.

`python -m benchmarks.planning.models DIR` writes each into a folder of its own. What they say means
nothing. How long it takes is like other models of their size, and how long their outputs are
follows a geometric distribution: at temperature 1 each token ends the output with probability
1 / mean_tokens. The distribution lies beside the weights, in `lengths.json`.
"""

import argparse
import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import number_type
from caesura.runtime.launch import BUNDLED_MODEL

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
END = 2
"""The token `<|im_end|>`, which ends an output."""
CONTEXT_TOKENS = 2048
LENGTHS = "lengths.json"
SPREAD = 0.3
"""The standard deviation of the logits, so that every text token is about equally likely."""
NEVER = -30.0
"""The logit of special tokens, so that an output is text."""


@dataclass(frozen=True, slots=True)
class Size:
    """A model: its name, widths, layers, and the mean length of its outputs in tokens."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    mean_tokens: int


SIZES = (
    Size("tiny", 256, 704, 4, 4, 60),
    Size("small", 512, 1408, 8, 8, 90),
    Size("medium", 768, 2048, 12, 12, 70),
    Size("large", 1024, 2816, 16, 16, 50),
)
"""4, 27, 87 and 208 million parameters, those of the embeddings included."""


def make_model(size: Size, folder: Path, seed: int = 0) -> Path:
    """Write the model into `folder / size.name`, and return that directory.

    The same size and seed give the same weights, whose files are in bfloat16. The model computes in
    float32 where the processor has no bfloat16.
    """
    import torch
    from transformers import GenerationConfig

    directory = folder / size.name
    model = _random_model(size, seed)
    model.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=0, do_sample=True)
    model.to(torch.bfloat16).save_pretrained(directory)
    config = directory / "config.json"
    computed = {**json.loads(config.read_text()), "dtype": number_type()}
    config.write_text(json.dumps(computed, indent=2))
    for name in TOKENIZER:
        shutil.copy(Path(BUNDLED_MODEL, name), directory / name)
    (directory / LENGTHS).write_text(json.dumps(geometric(size.mean_tokens)))
    return directory


def geometric(mean: int, most: int = CONTEXT_TOKENS) -> list[list[float]]:
    """Return `[length, probability]` of outputs with a mean of `mean` tokens, the last included."""
    goes_on = 1 - 1 / mean
    pairs = [[length, goes_on ** (length - 1) / mean] for length in range(1, most)]
    return [*pairs, [most, goes_on ** (most - 1)]]


def _random_model(size: Size, seed: int) -> "LlamaForCausalLM":
    """Return a model with random weights, whose output ends with a constant probability.

    Channel 0 of the hidden state is the same for every token: no layer writes to it. So the output
    layer's column 0 acts as a bias of the logits.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    vocabulary, special = _vocabulary()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            max_position_embeddings=CONTEXT_TOKENS,
            eos_token_id=END,
            pad_token_id=0,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight.normal_(std=1.0)
        embedding[:, 0] = 1.0
        for layer in model.model.layers:
            for output in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                # As in GPT-2: the sum of all layers stays small beside the embedding.
                output /= math.sqrt(2 * size.layers)
                output[0] = 0.0
        logits = model.lm_head.weight.normal_(std=SPREAD / math.sqrt(size.hidden))
        logits[:, 0] = 0.0
        logits[special] = 0.0
        logits[special, 0] = NEVER
        logits[END, 0] = _end_logit(vocabulary - len(special), size.mean_tokens)
    return model


def _vocabulary() -> tuple[int, list[int]]:
    """Return the size of the bundled vocabulary, and its special tokens with the end of a turn."""
    tokenizer = json.loads(Path(BUNDLED_MODEL, "tokenizer.json").read_text())
    config = json.loads(Path(BUNDLED_MODEL, "config.json").read_text())
    return config["vocab_size"], [each["id"] for each in tokenizer["added_tokens"]]


def _end_logit(texts: int, mean: int) -> float:
    """Return the logit that has the probability 1 / mean beside `texts` normal logits."""
    return math.log(texts * math.exp(SPREAD**2 / 2) / (mean - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the models' folders go")
    names = [size.name for size in SIZES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for size in SIZES:
        if size.name in given.only:
            print(make_model(size, given.folder, given.seed))


if __name__ == "__main__":
    main()
