"""The workloads of three papers, drawn from their tables.

InferCept's mix of six tools (Abhyankar et al., "InferCept: Efficient Intercept Support for
Augmented Large Language Model Inference", ICML 2024). Its Table 1 has the mean and the standard
deviation of a call's seconds, of a session's number of calls, and of the context at a call. The
paper does not tabulate the tokens that are decoded between calls and returned by them. Those means,
and the gamma and lognormal distributions, are choices made here.

ToolBench as LAMPS uses it (Shahout et al., "Fast Inference for Augmented Large Language Models").
Its Table 2 has the mean and the standard deviation of a call's seconds and of a session's number of
calls. Everything else is a choice made here. The other two data sets of the paper are InferCept's:
`multi` is its whole mix, and `single` has sessions with one call, which `Mix` draws with `single`.
Section 6 names four of the six tools and Table 2 all; all are used here.

The single-shot workloads of Past-Future (Gong et al., "Past-Future Scheduler for LLM Serving under
SLA Guarantees", ASPLOS 2025). Section 5 and Table 1 have three uniform distributions of input and
output lengths, and ShareGPT-o1. The authors' artifact (WuSiYu/lightllm-ae) has 10 to 500 clients.
Each client sends its next request when the last one is answered: 500 requests of a distribution,
1,900 of ShareGPT-o1.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import (
    Moments,
    Shape,
    drawn_within,
    fitting,
    gamma,
    lognormal,
    lognormal_of,
)
from caesura.simulator.workload.reading import DataError, count_of, lines


@dataclass(frozen=True)
class Tool:
    """One row of the table: the first three fields are the paper's, the last two choices."""

    call_seconds: Moments
    calls: Moments
    context_tokens: Moments
    decode_tokens: float
    returned_tokens: float


INFERCEPT_TOOLS = {
    "math": Tool((9e-5, 6e-5), (3.75, 1.3), (1422, 738), 30, 6),
    "qa": Tool((0.69, 0.17), (2.52, 1.73), (1846, 428), 60, 100),
    "ve": Tool((0.09, 0.014), (28.18, 15.2), (2185, 115), 12, 12),
    "chatbot": Tool((28.6, 15.6), (4.45, 1.96), (753, 703), 120, 40),
    "image": Tool((20.03, 7.8), (6.91, 3.93), (1247, 792), 50, 24),
    "tts": Tool((17.24, 7.6), (6.91, 3.93), (1251, 792), 50, 24),
}

INFERCEPT_GROUPS = {
    "all": tuple(INFERCEPT_TOOLS),
    "short": ("math", "qa", "ve"),
    "long": ("chatbot", "image", "tts"),
}
"""Groups of tools: `short` ones answer within a second, `long` ones in about 20 seconds."""

DECODE_SIGMA = 0.6
RETURNED_SIGMA = 0.4


class Mix:
    """Draws sessions that each use one tool; all tools are equally likely.

    `balanced`: each round of sessions has every tool once, in random order, which reduces random
    differences between runs. `single`: every session makes one call, whatever the table says. A
    session whose first call does not fit the context is drawn again. Raises `ValueError` if none
    fits.
    """

    def __init__(
        self, tools: Sequence[str], shape: Shape, balanced: bool = False, single: bool = False
    ) -> None:
        self._tools = list(tools)
        self._shape = shape
        self._balanced = balanced
        self._single = single
        self._kinds: list[str] = []

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next session."""
        kind = self._kind(rng)
        return kind, fitting(lambda: self._segments(rng, kind), self._shape, fewest=2)

    def _kind(self, rng: random.Random) -> str:
        if not self._balanced:
            return rng.choice(self._tools)
        if not self._kinds:
            self._kinds = rng.sample(self._tools, len(self._tools))
        return self._kinds.pop()

    def _segments(self, rng: random.Random, kind: str) -> list[Segment]:
        """Return a drawn session of any length; one segment follows its last call."""
        tool, shape = INFERCEPT_TOOLS[kind], self._shape
        given = shape.given(rng, gamma(rng, prompt_moments(tool)))
        segments = []
        calls = 1 if self._single else max(1, round(gamma(rng, tool.calls)))
        for call in range(calls + 1):
            decoded = shape.decoded(rng, lognormal(rng, tool.decode_tokens, DECODE_SIGMA))
            seconds = shape.seconds(gamma(rng, tool.call_seconds))
            last = call == calls
            segments.append(Segment(given, decoded, "" if last else kind, 0.0 if last else seconds))
            given = shape.given(rng, lognormal(rng, tool.returned_tokens, RETURNED_SIGMA))
        return segments


def prompt_moments(tool: Tool) -> Moments:
    """Return the prompt's moments that give the context at a call the moments of the table.

    The context at call j of K is the prompt and the tokens added since, about
    j (decoded + returned). Over all calls of all sessions, a session of K calls counts K times. If
    the growth alone varies more than the table says (28 calls of `ve`), the prompt's standard
    deviation is a tenth of its mean.
    """
    mean, deviation = tool.calls
    scale = deviation**2 / mean
    second = mean * (mean + scale)
    third = second * (mean + 2 * scale)
    position = (second / mean + 1) / 2
    position_square = (2 * third + 3 * second + mean) / (6 * mean)
    cycle = tool.decode_tokens + tool.returned_tokens
    grown = position * cycle - tool.returned_tokens
    variance = (position_square - position**2) * cycle**2
    context_mean, context_deviation = tool.context_tokens
    prompt = context_mean - grown
    return prompt, max(math.sqrt(max(0.0, context_deviation**2 - variance)), prompt / 10)


TOOLBENCH = "toolbench"
TOOLBENCH_SECONDS: Moments = (1.72, 3.33)
TOOLBENCH_CALLS: Moments = (2.45, 1.81)


# Measured on the 13 example answers of OpenBMB/ToolBench (data_example/answer), including system
# prompt and functions, with four characters per token.
TOOLBENCH_PROMPT: Moments = (1710, 690)


TOOLBENCH_CALL: Moments = (93, 96)
TOOLBENCH_RETURNED: Moments = (97, 107)
TOOLBENCH_ANSWER: Moments = (144, 108)
TOOLBENCH_MOST = 500
"""The longest segment: LAMPS' predictor of lengths has 50 classes of 10 tokens."""


class ToolBench:
    """Draws sessions with gamma calls and prompts, and lognormal durations and lengths.

    The standard deviation of durations is twice their mean. They are lognormal, as for a web
    service, since most draws of a gamma distribution would be close to 0. A session whose first
    call does not fit the context is drawn again. Raises `ValueError` if none fits.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next session."""
        return TOOLBENCH, fitting(lambda: self._segments(rng), self._shape, fewest=2)

    def _segments(self, rng: random.Random) -> list[Segment]:
        shape = self._shape
        given = shape.given(rng, gamma(rng, TOOLBENCH_PROMPT))
        segments = []
        for _ in range(max(1, round(gamma(rng, TOOLBENCH_CALLS)))):
            seconds = shape.seconds(lognormal_of(rng, TOOLBENCH_SECONDS))
            segments.append(Segment(given, self._decoded(rng, TOOLBENCH_CALL), TOOLBENCH, seconds))
            given = shape.given(rng, lognormal_of(rng, TOOLBENCH_RETURNED))
        return [*segments, Segment(given, self._decoded(rng, TOOLBENCH_ANSWER))]

    def _decoded(self, rng: random.Random, moments: Moments) -> int:
        tokens = drawn_within(lambda: lognormal_of(rng, moments), TOOLBENCH_MOST)
        return self._shape.decoded(rng, tokens)


Lengths = tuple[int, int]
"""Input and output tokens of a request."""


@dataclass(frozen=True)
class Uniform:
    """Inclusive ranges of input and output tokens, and the preset maximum of the output."""

    given: tuple[int, int]
    decoded: tuple[int, int]
    most: int


DISTRIBUTIONS = {
    "d1": Uniform((32, 4096), (2048, 4096), 4096),
    "d2": Uniform((3000, 5000), (3000, 5000), 5000),
    "d3": Uniform((2048, 4096), (32, 4096), 4096),
}
"""Decode-heavy, balanced, prefill-heavy. The artifact presets 4,096 for all three in its simulation
of Table 1 (`behavior-analysis`); in d2, whose outputs are longer than that, it is 5,000 here."""

O1_MOST = 12_000
"""The artifact's conservative limit for every request; the longest has 10,935 tokens."""

EXACT = -1
"""A value of `most`: the client's limit is what the request will decode, as in the artifact."""


class Requests:
    """Draws requests of one segment, from a distribution or from recorded lengths.

    Recorded lengths come in random order, and in a new random order once all are used. `most` is
    the client's limit on decoded tokens, before scaling: None is the preset, `EXACT` is what the
    request will decode, and 0 is the model's context.
    """

    def __init__(
        self, name: str, source: Uniform | list[Lengths], shape: Shape, most: int | None
    ) -> None:
        self._name = name
        self._source = source
        self._shape = shape
        preset = source.most if isinstance(source, Uniform) else O1_MOST
        self._most = preset if most is None else most
        self._left: list[Lengths] = []

    def __call__(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Return the next request that fits the context; raises `ValueError` if none does."""
        return self._name, fitting(lambda: [self._request(rng)], self._shape, fewest=1)

    def _request(self, rng: random.Random) -> Segment:
        shape = self._shape
        given, decoded = self._lengths(rng)
        asked = shape.decoded(rng, decoded)
        most = asked if self._most == EXACT else round(self._most * shape.tokens * shape.decode)
        return Segment(shape.given(rng, given), asked, most_tokens=max(asked, most) if most else 0)

    def _lengths(self, rng: random.Random) -> Lengths:
        if isinstance(self._source, Uniform):
            return rng.randint(*self._source.given), rng.randint(*self._source.decoded)
        if not self._left:
            self._left = rng.sample(self._source, len(self._source))
        return self._left.pop()


def read_lengths(path: Path) -> list[Lengths]:
    """Return the `prompt_tokens` and `completion_tokens` of a JSON list (ShareGPT-o1.json).

    Raises `DataError` that names the line of broken JSON, or the wrong entry.
    """
    text = "".join(line for _, line in lines(path))
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(path, error.lineno, f"not JSON: {error.msg}") from error
    if not isinstance(entries, list) or not entries:
        raise DataError(path, 1, f"not a list of requests: {text[:60]}")
    found = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise DataError(path, 0, f"entry {number} must be an object, got {entry!r:.60}")
        try:
            given = count_of(entry, "prompt_tokens", path, 0, 1)
            found.append((given, count_of(entry, "completion_tokens", path, 0, 1)))
        except DataError as error:
            raise DataError(path, 0, f"entry {number}: {error.problem}") from error
    return found
