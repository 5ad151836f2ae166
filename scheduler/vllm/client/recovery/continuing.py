"""The settings with which another engine goes on within a turn.

The tokens that were sampled are now the end of a prompt. vLLM counts limits and penalties over the
output alone, so the settings have to say what the output no longer shows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from caesura.scheduler.messages import Sampling

MAX_SEED = 1 << 63


def behind(sampling: Sampling, sampled: Sequence[int]) -> Sampling:
    """Return the settings for the rest of a turn, of which `sampled` exists.

    What the limits count is exact. So is the frequency penalty, as a bias of the tokens that exist.
    The presence penalty counts twice for a token that is sampled again. Random numbers cannot go on
    where they stood: another seed at least does not repeat those that were used.
    """
    if not sampled:
        return sampling
    count = len(sampled)
    limit, least, seed = sampling.max_tokens, sampling.min_tokens, sampling.seed
    return replace(
        sampling,
        # One token at least, since a turn that has reached its limit has ended.
        max_tokens=None if limit is None else max(1, limit - count),
        min_tokens=None if least is None else max(0, least - count),
        seed=None if seed is None else (seed + count) % MAX_SEED,
        logit_bias=_biases(sampling, sampled),
    )


def _biases(sampling: Sampling, sampled: Sequence[int]) -> dict[int, float]:
    biases = dict(sampling.logit_bias)
    presence = sampling.presence_penalty or 0.0
    frequency = sampling.frequency_penalty or 0.0
    if presence or frequency:
        for token, count in Counter(sampled).items():
            biases[token] = biases.get(token, 0.0) - presence - frequency * count
    return biases
