"""SamuLLM's latency model of an iteration, with coefficients fitted to timed vLLM iterations.

SamuLLM's authors timed the iterations on A100-80G devices, with a vLLM of early 2024.
`samullm.json` keeps a fit for each model and tensor parallel degree, with its error on held-out
iterations. `benchmarks/data/make_samullm_fits.py` makes the file.
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
    """The work of an iteration in one phase: B requests, and the x of each part.

    The x of comp is `flops` in 10^12, as the paper counts them; that of prep is `padded` (B s), and
    that of samp is `total` (S).
    """

    requests: float
    flops: float
    padded: float
    total: float


@dataclass(frozen=True, slots=True)
class Line:
    """t = a[B] x + b[B] of one part (equation 5), where a and b are linear in B between knots.

    Times are seconds. Beyond the last knot, a request costs as much as at that knot.
    """

    knots: tuple[float, ...]
    bases: tuple[float, ...]
    slopes: tuple[float, ...]

    def at(self, requests: float, x: float) -> float:
        """Return the seconds of the part for `requests` requests and the work `x`."""
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
        """Return the seconds of an iteration of this phase."""
        return (
            self.comp.at(work.requests, work.flops)
            + self.prep.at(work.requests, work.padded)
            + self.samp.at(work.requests, work.total)
        )


@dataclass(frozen=True, slots=True)
class SamuLLM:
    """The latency of a step as comp + prep + samp, each linear in its x (SamuLLM, section 3).

    Equations 1 and 2 count L(c B s + 2 B h s^2/tp) FLOPs for a prefill, L(c B + 2 h S/tp) for a
    decode. Here `per_token` is L c and `per_pair` 2 L h/tp, in 10^12. A prefill counts each of its
    query-key pairs twice, as without a causal mask. x leaves out the FLOPs of one token per
    request, which only changes b[B] and keeps it from being negative.

    `kv_tokens` is the largest context of a timed iteration, which for most models filled the KV
    cache. `kv_bytes` is the KV of a token on one device. `errors` are the mean relative errors of
    prefill and decode on held-out iterations.

    The vLLM of 2024 prefilled whole prompts, padded to the longest, in iterations of their own.
    Today's vLLM does neither. So tokens count without padding here, and a chunk has the FLOPs of
    its own tokens and pairs. A step that prefills and decodes takes the time of both, minus one
    smallest decode, since starting up and reading the weights happen once. A step's shape does not
    show the context of its prefilling requests, which are assumed to be alike.
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
        if not prompts or not tokens:
            return self._decode(step.decodes, step.context, step.longest)
        flops = self.per_token * max(0, tokens - prompts) + self.per_pair * 2 * step.pairs
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
    """Return the fits by model and tensor parallel degree."""
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
    """Return the fit of a model; raises `ValueError` that lists the fits."""
    found = fits().get(model)
    if found is None:
        raise ValueError(f"no SamuLLM fit of {model!r}; choose from: {', '.join(fits())}")
    if degree not in found:
        there = ", ".join(map(str, found))
        raise ValueError(f"no SamuLLM fit of {model} at tp={degree}; choose tp from: {there}")
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
