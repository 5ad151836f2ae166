"""Map token ids to the bytes that they stand for."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"


class Vocabulary:
    """The bytes of each token id; ids outside the table (output layer padding) have none."""

    def __init__(self, pieces: Sequence[bytes], own: Mapping[int, bytes] | None = None) -> None:
        """`own` are the texts that the tokenizer keeps whole: added and special tokens, by id."""
        self._pieces = pieces
        self._own = {text: token_id for token_id, text in (own or {}).items()}
        self._without: dict[bytes, set[int]] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to a text."""
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""

    def known_without(self, pattern: bytes) -> set[int]:
        """Return the ids whose bytes are known to hold no match of `pattern`.

        Readers add to the set what they find out. It lasts as long as the vocabulary, so a pattern
        must not come from a request.
        """
        return self._without.setdefault(pattern, set())

    def own_token(self, text: bytes) -> int | None:
        """Return the id of the added or special token with exactly this text, or None."""
        return self._own.get(text)


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """Return the inverse of GPT-2's map of bytes to characters, as in byte-level BPE.

    Printable Latin-1 bytes map to themselves; the others map, in order, to U+0100 and on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


def _byte_level(token: str) -> bytes:
    table = _byte_of_character()
    try:
        return bytes(table[character] for character in token)
    except KeyError:
        return token.encode()


def _metaspace(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    if byte:
        return bytes([int(byte.group(1), 16)])
    return token.replace(_METASPACE, " ").encode()


def vocabulary_of(
    tokens: Sequence[str | None], added: Mapping[int, str], byte_level: bool
) -> Vocabulary:
    """Return the vocabulary of a tokenizer's raw token texts.

    `tokens[i]` is the raw text of id i (None: unused). `added` maps ids of added and special
    tokens to their plain text. `byte_level`: the vocabulary is of GPT-2's style. Otherwise it is
    of SentencePiece's style, with U+2581 for a space and `<0x0A>` for an odd byte.
    """
    decode = _byte_level if byte_level else _metaspace
    pieces = [b"" if token is None else decode(token) for token in tokens]
    for token_id, text in added.items():
        if 0 <= token_id < len(pieces):
            pieces[token_id] = text.encode()
    return Vocabulary(pieces, {token_id: text.encode() for token_id, text in added.items()})
