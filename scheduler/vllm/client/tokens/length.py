"""The maximum number of characters per token, which bounds a prompt without tokenising it.

Tokenising takes seconds per megabyte. A text with more characters than the context window's
tokens could hold is refused without tokenising.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

NFC_CHARACTERS = 4
"""Maximum number of characters that NFC composes into one (Unicode's longest decomposition)."""
_KEEPING = {"ByteLevel", "Digits", "Metaspace"}
"""Pre-tokenizers of the library `tokenizers` that keep every character."""


def max_characters_per_token(tokenizer: Any) -> int | None:
    """Return the maximum number of characters that one token of `tokenizer` stands for.

    Return None if that is unknown. The tokenizer is then not a fast one of `transformers`, or it
    drops or merges characters, such as white space around a special token.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    spec = json.loads(backend.to_str())
    vocabulary = tokenizer.get_vocab()
    normalized = _characters_normalized_to_one(spec["normalizer"])
    strips = any(token["lstrip"] or token["rstrip"] for token in spec["added_tokens"])
    if normalized is None or strips or not _keeps_characters(spec, vocabulary):
        return None
    # In a byte-level vocabulary a token has a character per byte, so its length is an upper bound.
    return max(map(len, vocabulary)) * normalized


def _keeps_characters(spec: Mapping[str, Any], vocabulary: Collection[str]) -> bool:
    """Return whether each character of a text becomes a token or a part of one."""
    steps = _flat(spec["pre_tokenizer"], "pretokenizers")
    if spec["model"]["type"] != "BPE":
        return False
    if not all(
        step["type"] in _KEEPING or (step["type"] == "Split" and step["behavior"] != "Removed")
        for step in steps
    ):
        return False
    if any(step["type"] == "ByteLevel" for step in steps):
        return _byte_characters() <= set(vocabulary)
    bytes_as_tokens = {f"<0x{byte:02X}>" for byte in range(256)}
    return bool(spec["model"]["byte_fallback"]) and bytes_as_tokens <= set(vocabulary)


def _characters_normalized_to_one(normalizer: Mapping[str, Any] | None) -> int | None:
    """Return how many characters the normalizer merges into one at most; None if unknown."""
    most = 1
    for step in _flat(normalizer, "normalizers"):
        match step:
            case {"type": "Prepend"}:
                pass
            case {"type": "NFC"}:
                most *= NFC_CHARACTERS
            case {"type": "Replace", "pattern": {"String": old}, "content": new} if new:
                most *= -(-len(old) // len(new))
            case _:
                return None
    return most


def _flat(step: Mapping[str, Any] | None, parts: str) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [each for part in step[parts] for each in _flat(part, parts)]


def _byte_characters() -> set[str]:
    """Return the 256 characters that stand for bytes in byte-level vocabularies, as in GPT-2."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = 256 - len(printable)
    return {chr(byte) for byte in printable} | {chr(256 + number) for number in range(others)}
