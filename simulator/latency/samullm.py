"""SamuLLM's latency model of an iteration, with coefficients fitted to timed vLLM iterations.

SamuLLM's authors timed them on A100-80G devices, under a vLLM of early 2024. `samullm.json` keeps
the fits, one for each model and tensor parallel degree, with the error that each has on iterations
which it has not seen; `benchmarks/data/make_samullm_fits.py` makes it.
"""

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from caesura.simulator.machine import StepShape

FILE = Path(__file__).with_name("samullm.json")
MICRO = 1e-6
"""Times in the file are in microseconds."""


class Work(NamedTuple):
    """What an iteration does in one phase: B requests and the three x.

    `flops` for comp, in 10^12 as the paper counts them, `padded` (B s) for prep, `total` (S) for
    samp.
    """

    requests: float
    flops: float
    padded: float
    total: float


@dataclass(frozen=True, slots=True)
class Line:
    """t = a[B] x + b[B] of one part (equation 5), where a and b are linear in B between knots.

    Seconds. Beyond the last knot a request costs what it costs there.
    """

    knots: tuple[float, ...]
    bases: tuple[float, ...]
    slopes: tuple[float, ...]

    def at(self, requests: float, x: float) -> float:
        """Return the seconds that the part takes for so many requests and so much work."""
        last = self.knots[-1]
        if requests >= last:
            return self.bases[-1] * requests / last + self.slopes[-1] * x
        left = max(0, bisect_right(self.knots, requests) - 1)
        low, high = self.knots[left : left + 2]
        share = (requests - low) / (high - low)
        base = self.bases[left] + share * (self.bases[left + 1] - self.bases[left])
        slope = self.slopes[left] + share * (self.slopes[left + 1] - self.slopes[left])
        return base + slope * x


@dataclass(frozen=True, slots=True)
class Phase:
    """Prefill or decode: the parts of its iterations, which come one after the other."""

    comp: Line
    prep: Line
    samp: Line

    def seconds(self, work: Work) -> float:
        """Return how long an iteration of this phase takes."""
        return (
            self.comp.at(work.requests, work.flops)
            + self.prep.at(work.requests, work.padded)
            + self.samp.at(work.requests, work.total)
        )


@dataclass(frozen=True, slots=True)
class SamuLLM:
    """The latency of a step as comp + prep + samp, each linear in its x (SamuLLM, section 3).

    Equations 1 and 2 count L(c B s + 2 B h s^2/tp) FLOPs for a prefill, L(c B + 2 h S/tp) for a
    decode. Here `per_token` is L c and `per_pair` 2 L h/tp, in 10^12; a prefill counts each of
    its query-key pairs twice, as without a causal mask. The FLOPs of one token per request are
    left out of x: at any B that is the same line with another b[B], one that is never negative.
    `kv_tokens` is the most context that a timed iteration held, which for most models is what the
    KV cache had room for; `kv_bytes` those of a token on one device. `errors` are the mean
    relative ones of prefill and decode on iterations that were held out.

    That vLLM prefilled whole prompts, padded to the longest, in iterations of their own. Today's
    does neither, so here tokens count without padding, and a chunk has the FLOPs of its own tokens
    and pairs. A step that prefills and decodes takes what the two take one after the other, less
    once what the smallest decode takes: starting up and reading the weights happens once. How
    much of the context belongs to those that prefill a step's shape does not tell; they are taken
    to be alike.
    """

    name: str
    per_token: float
    per_pair: float
    kv_tokens: int
    kv_bytes: int
    errors: tuple[float, float]
    prefill: Phase
    decode: Phase

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that the step takes, without copies."""
        prompts, tokens = step.sequences - step.decodes, step.tokens - step.decodes
        if not prompts:
            return self._decode(step.decodes, step.context, step.longest)
        flops = self.per_token * (tokens - prompts) + self.per_pair * 2 * step.pairs
        prefill = self.prefill.seconds(Work(prompts, flops, tokens, tokens))
        if not step.decodes:
            return prefill
        # The last q tokens of a context of c see c - (q - 1)/2 tokens on average.
        theirs = step.pairs * prompts / tokens + (tokens - prompts) / 2
        context = max(float(step.decodes), step.context - theirs)
        decode = self._decode(step.decodes, context, min(step.longest, context))
        return prefill + decode - min(prefill, self._decode(1, 1, 1))

    def _decode(self, requests: int, context: float, longest: float) -> float:
        work = Work(requests, self.per_pair * context, requests * longest, context)
        return self.decode.seconds(work)


@cache
def fits() -> dict[str, dict[int, SamuLLM]]:
    """Return what was fitted, by model and tensor parallel degree."""
    data = json.loads(FILE.read_text())
    knots = tuple(float(knot) for knot in data["knots"])
    return {
        model: {
            int(degree): _read(f"samullm {model} tp{degree}", fit, knots)
            for degree, fit in degrees.items()
        }
        for model, degrees in data["fits"].items()
    }


def samullm(model: str, degree: int = 1) -> SamuLLM:
    """Return the fit of a model; raises `ValueError` that says which there are."""
    found = fits().get(model)
    if found is None:
        raise ValueError(f"no SamuLLM fit of {model!r}; there are {', '.join(fits())}")
    if degree not in found:
        there = ", ".join(map(str, found))
        raise ValueError(f"no SamuLLM fit of {model} at tp={degree}; there is tp={there}")
    return found[degree]


def _read(name: str, fit: dict[str, Any], knots: tuple[float, ...]) -> SamuLLM:
    def phase(lines: dict[str, list[list[float]]]) -> Phase:
        parts = (
            Line(knots, *(tuple(MICRO * value for value in row) for row in lines[part]))
            for part in ("comp", "prep", "samp")
        )
        return Phase(*parts)

    return SamuLLM(
        name=name,
        per_token=float(fit["per_token"]),
        per_pair=float(fit["per_pair"]),
        kv_tokens=int(fit["kv_tokens"]),
        kv_bytes=int(fit["kv_bytes"]),
        errors=(float(fit["errors"][0]), float(fit["errors"][1])),
        prefill=phase(fit["prefill"]),
        decode=phase(fit["decode"]),
    )
