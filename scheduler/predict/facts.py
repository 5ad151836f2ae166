"""What the engine has seen of a session before its current segment: the input of predictors.

What a call says is kept without its text. A word is a number of one of `WORD_BUCKETS` buckets. The
hash is keyed by a salt that is secret to a deployment, so that buckets do not tell which words a
client sent.
"""

import re
from dataclasses import dataclass, replace
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class CallWords:
    """The hashed words of a call, and its hashed first words, both below `WORD_BUCKETS`."""

    words: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()


NO_WORDS = CallWords()
MAX_COUNTED_HEADS = 64
"""The largest number of different first words that are counted for a session."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a session at the begin of its current segment.

    `calls` is its number of calls so far, `context_tokens` the length of its context, and `seconds`
    the time since its arrival. `segment_tokens` were decoded in the last segment, and
    `segment_mean` on average in all. `result_tokens` and `result_mean` are the same of the tools'
    results. `errors` results were errors; `last_error`: the last one was. `tool` was called last,
    with the hashed `words`. `heads` counts the hashed first words of all calls: (hash, calls).
    Before the first call, lengths are 0 and words are empty. Texts are never kept, only hashes.
    """

    calls: int = 0
    context_tokens: int = 0
    seconds: float = 0.0
    segment_tokens: int = 0
    segment_mean: float = 0.0
    result_tokens: int = 0
    result_mean: float = 0.0
    errors: int = 0
    last_error: bool = False
    tool: str = ""
    words: tuple[int, ...] = ()
    heads: tuple[tuple[int, int], ...] = ()

    def after_call(self, decoded_tokens: int, tool: str | None, words: CallWords) -> "Facts":
        """Return the facts once a segment of `decoded_tokens` ended with a call of `tool`."""
        counts = dict(self.heads)
        for head in words.heads:
            if head in counts or len(counts) < MAX_COUNTED_HEADS:
                counts[head] = counts.get(head, 0) + 1
        return replace(
            self,
            calls=self.calls + 1,
            segment_tokens=decoded_tokens,
            segment_mean=_next_mean(self.segment_mean, self.calls, decoded_tokens),
            tool=tool or "",
            words=words.words,
            heads=tuple(counts.items()),
        )

    def after_result(
        self, result_tokens: int, failed: bool, context_tokens: int, seconds: float
    ) -> "Facts":
        """Return the facts once the last call's result has come, `seconds` after the arrival."""
        return replace(
            self,
            context_tokens=context_tokens,
            seconds=seconds,
            result_tokens=result_tokens,
            result_mean=_next_mean(self.result_mean, self.calls - 1, result_tokens),
            errors=self.errors + failed,
            last_error=failed,
        )


NO_FACTS = Facts()


def _next_mean(mean: float, count: int, value: float) -> float:
    """Return the mean of `count` values of this mean, and one more value."""
    count = max(0, count)
    return (mean * count + value) / (count + 1)


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
