"""Tiny random models with the vocabulary of gpt-oss and the chat template of another model.

Coding agents send 5,000 to 30,000 tokens in such a vocabulary, several times as many in that of the
bundled model.
"""

import itertools
import json
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.agents.templates import Template
from tests.clients.servers import ROOT
from tests.formats.world import byte_characters

PLAIN = 199_998
"""gpt-oss's tokens before its special ones."""
SPECIAL = {
    199_998: "<|startoftext|>",
    199_999: "<|endoftext|>",
    200_002: "<|return|>",
    200_003: "<|constrain|>",
    200_005: "<|channel|>",
    200_006: "<|start|>",
    200_007: "<|end|>",
    200_008: "<|message|>",
    200_012: "<|call|>",
}
SIZE = 201_088
WINDOW = 100_000
"""Tokens of the context window."""
USUAL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1 << 17,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "pad_token_id": 199_999,
}


def make(template: Template, folder: Path) -> Path:
    """Make the model of a template below a folder, unless it is there; return its directory."""
    import torch
    import transformers

    directory = folder / template.file
    if (directory / "model.safetensors").exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    vocabulary = folder / "vocabulary.json"
    if not vocabulary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary.write_text(json.dumps(vocabulary_of_gpt_oss()))
    tokenizer = _tokenizer(json.loads(vocabulary.read_text()), template.tokens)
    tokenizer.eos_token = template.ends[0]
    source = ROOT / "tests" / "scheduler" / "templates" / f"{template.file}.jinja"
    tokenizer.chat_template = source.read_text()
    tokenizer.save_pretrained(directory)
    ends = [int(tokenizer.convert_tokens_to_ids(end)) for end in template.ends]
    config = getattr(transformers, template.config)(
        vocab_size=SIZE, eos_token_id=ends[0], **{**USUAL, **template.sizes}
    )
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    torch.manual_seed(7)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    made.generation_config.eos_token_id = ends
    made.save_pretrained(directory)
    return directory


def vocabulary_of_gpt_oss() -> dict[str, Any]:
    """Return its tokens in byte-level characters, and its merges by rank."""
    from openai_harmony import load_harmony_encoding  # type: ignore[import-untyped]

    encoding = load_harmony_encoding("HarmonyGptOss")
    tokens = [bytes(encoding._inner.decode_bytes([index])) for index in range(PLAIN)]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    characters = byte_characters()
    texts = ["".join(characters[byte] for byte in token) for token in tokens]
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            left = _left_of(token, rank, ranks)
            merges.append([texts[ranks[left]], texts[ranks[token[len(left) :]]]])
    return {"tokens": texts, "merges": merges}


def _left_of(token: bytes, rank: int, ranks: dict[bytes, int]) -> bytes:
    """Return the left of the two tokens that merge into this one."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, rank) for a, b in itertools.pairwise(parts)]
        at = min(range(len(pairs)), key=pairs.__getitem__)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0]


@cache
def _pattern() -> str:
    """Return how gpt-oss's tokenizer cuts texts before it merges bytes."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    short = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    return "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{short}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{short}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


def _tokenizer(vocabulary: dict[str, Any], tokens: Iterable[str]) -> Any:
    """Return a tokenizer of these texts, with special tokens of gpt-oss and of a template."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {text: index for index, text in enumerate(vocabulary["tokens"])}
    special = [SPECIAL.get(index, f"<|reserved_{index}|>") for index in range(PLAIN, 200_013)]
    ids |= {text: PLAIN + index for index, text in enumerate(special)}
    merges = [(left, right) for left, right in vocabulary["merges"]]
    made = Tokenizer(models.BPE(vocab=ids, merges=merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    # Markers such as <think> are single tokens, which are not special to the tokenizers of Qwen.
    made.add_tokens([AddedToken(each, normalized=False, special=_ends(each)) for each in tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=WINDOW, clean_up_tokenization_spaces=False
    )


def _ends(token: str) -> bool:
    return token.startswith(("<|", "<s", "</s", "["))
