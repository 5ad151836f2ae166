"""What the engine has seen of a session before its current segment: the input of predictors."""

from dataclasses import dataclass, replace

from caesura.scheduler.predict.words import CallWords

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
