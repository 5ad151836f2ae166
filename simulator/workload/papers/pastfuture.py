"""The single-shot workloads of the Past-Future scheduler.

Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees" (ASPLOS 2025), section 5
and Table 1: three uniform distributions of input and output lengths, and ShareGPT-o1. The authors'
artifact (WuSiYu/lightllm-ae) has 10 to 500 clients. Each client sends its next request when the
last one is answered: 500 requests of a distribution, 1,900 of ShareGPT-o1.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import Shape, fitting
from caesura.simulator.workload.reading import DataError, count_of, lines

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
