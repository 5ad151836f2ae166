"""Hashed words of calls: what a call says, without its text.

A word is kept as a number of one of `WORD_BUCKETS` buckets. The hash is keyed by a salt that is
secret to a deployment, so that buckets do not tell which words a client sent.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

WORD_BUCKETS = 4096

MAX_WORDS = 24
"""The largest number of different words that are kept of a call."""

MAX_HEADS = 4
"""The largest number of different first words that are kept of a call."""

MAX_CALL_BYTES = 2048
"""The number of first bytes of a call whose words are hashed."""

MAX_RESULT_BYTES = 256
"""The number of first bytes of a result that are searched for an error."""

WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]{0,31}")

# A first word stands at the begin of the call, of a value, or of a shell command.
HEAD = re.compile(
    rb"""(?:^(?:```\w*\s*\n|[\[({\s]*)|[:=]\s*["']|>\s*\n|&&|\|\|?|;)\s*([A-Za-z_][A-Za-z0-9_.-]{0,31})""",
)

SILENT_HEADS = frozenset({b"cd", b"name", b"arguments"})
"""First words that say nothing about what a call does."""

ERROR = re.compile(
    rb"error|exception|traceback|fail(?:ed|ure)|not found|no such|denied|invalid|timed out"
    rb"|(?:return ?code|exit ?code|exit status)\W{1,3}-?[1-9]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class CallWords:
    """The hashed words of a call, and its hashed first words, both below `WORD_BUCKETS`."""

    words: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()


NO_WORDS = CallWords()


class WordHasher:
    """Hashes the words of calls with the `salt` of a deployment, of at most 64 bytes."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def words(self, call: bytes) -> CallWords:
        """Return the hashed words at the begin of a call's text, without repetition."""
        call = call[:MAX_CALL_BYTES]
        heads = dict.fromkeys(found.group(1) for found in HEAD.finditer(call))
        telling = [head for head in heads if head not in SILENT_HEADS][:MAX_HEADS]
        words: dict[bytes, None] = {}
        for found in WORD.finditer(call):
            words[found.group().lower()] = None
            if len(words) == MAX_WORDS:
                break
        return CallWords(self._hashed(words), self._hashed(telling))

    def _hashed(self, words: dict[bytes, None] | list[bytes]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._bucket(word) for word in words))

    def _bucket(self, word: bytes) -> int:
        digest = blake2b(word, digest_size=4, key=self._salt).digest()
        return int.from_bytes(digest, "big") % WORD_BUCKETS


def tells_of_error(result: bytes) -> bool:
    """Return whether the begin of a tool's result reads like an error."""
    return ERROR.search(result[:MAX_RESULT_BYTES]) is not None
