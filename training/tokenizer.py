"""Trains the byte-level BPE tokenizer of caesura-tiny on the synthetic conversations."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import segments
from tasks.conversation import conversation
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VOCABULARY = 1024  # before words are cut alike
SPACE = "Ġ"  # how byte-level BPE writes a space
# Digits, brackets and operators stand alone, so that numbers are copied digit by digit. A space
# joins a lower-case word only: a capitalised name then has the same tokens after a space, a quote
# or a bracket, which makes it easy to copy.
PATTERN = r" ?[a-z]+|[A-Z]+[a-z]*|[0-9]| ->|[()\[\]*/+%.\-]| ?[^\sA-Za-z0-9()\[\]*/+%.\-]+|\s"
CONFIG = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "model_max_length": 2048,
    "pad_token": "<|endoftext|>",
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def written(count: int, seed: int) -> Iterator[str]:
    """Yield the text between the added tokens of many conversations.

    The added tokens are cut out: the merges would be wasted on their letters otherwise.
    """
    rng = random.Random(f"tokenizer {seed}")
    added = re.compile("|".join(re.escape(token) for token in (*SPECIAL, *MARKERS)))
    for _ in range(count):
        for segment in segments.conversation_segments(conversation(rng)):
            yield from added.split(segment.text)


def train(count: int = 6000, seed: int = 0, vocabulary: int = VOCABULARY) -> Tokenizer:
    """Return a tokenizer whose ids start with the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Only the three ChatML marks are special: the others must survive skip_special_tokens.
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKERS])
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[*SPECIAL, *MARKERS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(written(count, seed), trainer)
    return alike(_unmark(tokenizer))


def bare(text: str) -> str:
    """Return the text of a token without the space that it begins with."""
    return text[1:] if len(text) > 1 and text.startswith(SPACE) else text


def alike(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that cuts a word alike behind a space, behind a quote and before an "s".

    " porwi" in a question has to become "porwi" in an argument, and so has " porwis". Plain BPE
    cuts one word of eight in another way there, and the model then cannot copy token by token. So
    merges are made within words first, then those that end in "s", then those with the space.
    """
    state = json.loads(tokenizer.to_str())
    model = state["model"]
    vocabulary = model["vocab"]
    pairs = dict.fromkeys((bare(a), b) for a, b in model["merges"] if a != SPACE)
    for a, b in pairs:
        vocabulary.setdefault(a + b, len(vocabulary))
    within = sorted(pairs, key=lambda pair: pair[1].endswith("s"))
    spaced = [(SPACE, bare(text)) for text in vocabulary if bare(text) != text]
    model["merges"] = [list(pair) for pair in (*within, *spaced)]
    return Tokenizer.from_str(json.dumps(state))


def _unmark(tokenizer: Tokenizer) -> Tokenizer:
    """Take the ``special`` flag, which the trainer sets, off the tool markers again."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] in SPECIAL
    return Tokenizer.from_str(json.dumps(state))


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.dumps(CONFIG, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")
    template = segments.TEMPLATE.read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def sample(tokenizer: Tokenizer, count: int = 1500) -> list[int]:
    """Return the first ``count`` ids of some conversations, on which sizes can be measured."""
    rng, ids = random.Random("sample"), list[int]()
    while len(ids) < count:
        pieces = segments.conversation_segments(conversation(rng))
        ids += segments.encode(pieces, encoder(tokenizer))[0]
    return ids[:count]


def texts(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens in the order of their ids."""
    found = {number: text for text, number in tokenizer.get_vocab().items()}
    return [found[number] for number in range(len(found))]


def encoder(tokenizer: Tokenizer) -> segments.Encoder:
    """Return a function that encodes text as the runtime does."""
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
