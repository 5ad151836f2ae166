"""What the paper finds beside what the runs say; the reasons are read off the runs.

No reason is written down here that a run could contradict: each is chosen by measures.
"""

from collections.abc import Iterable, Iterator
from math import log

from benchmarks.papers.lamps_claims import (
    CLAIMS,
    GPTJ,
    GPTJ_SINGLE_5,
    INFERCEPT,
    LAMPS,
    VLLM,
    Claim,
)
from benchmarks.papers.lamps_plan import FIGURES
from benchmarks.papers.lamps_run import Found, Setup
from benchmarks.papers.lamps_systems import ERRORS, THRESHOLD_NAMES, mistaken
from benchmarks.papers.run import Row

MEASURES = {
    "latency_mean": "latency",
    "latency_median": "median latency",
    "latency_p99": "P99 latency",
    "ttft_mean": "TTFT",
    "sessions_per_second": "ended/s",
}

LARGE_ERROR = 0.3
"""From here on the paper calls errors large."""

BASES = {INFERCEPT: "InferCept", VLLM: "vLLM"}

CLOSE = 1.15
"""Two quotients agree if neither is more than so many times the other."""

QUEUES_SECONDS = 1.0
"""A system whose mean TTFT is below this does not queue: a prefill takes some 0.2 s."""


def rows(number: int, found: Found) -> list[Row]:
    """Return the rows of a figure; quotients are those of two systems in the same measure."""
    others = {7: _figure_7, 9: _figure_9, 10: _figure_10, 11: _figure_11}
    claims = [claim for claim in CLAIMS if claim.figure == number]
    known = [
        _claimed(claim, found)
        for claim in claims
        if found.has(claim.setup, claim.system) and found.has(claim.setup, claim.base)
    ]
    return known + list(others[number](found) if number in others else ())


def _claimed(claim: Claim, found: Found) -> Row:
    what = f"{claim.setup}: {MEASURES[claim.measure]}, LAMPS / {BASES[claim.base]}"
    paper = 1 + claim.change
    ours = found.quotient(claim.setup, claim.system, claim.base, claim.measure).mean
    if claim.about:
        what += f" (the paper: {claim.about})"
    return Row(what, paper, ours, because(claim, paper, ours, found))


def because(claim: Claim, paper: float, ours: float, found: Found) -> str:
    """Say by the state of both systems why a quotient is not the paper's."""
    if max(paper, ours) <= CLOSE * min(paper, ours):
        return "agrees"
    base, setup = BASES[claim.base], claim.setup
    waits = found.mean(setup, claim.base, "ttft_mean")
    if waits < QUEUES_SECONDS and abs(log(ours)) > abs(log(paper)):
        again = [found.mean(setup, each, "recompute_share") for each in (claim.base, claim.system)]
        return (
            f"no request queues; {base} recomputes {again[0]:.0%} of its tokens,"
            f" LAMPS {again[1]:.0%}"
        )
    if waits < QUEUES_SECONDS:
        full = found.mean(setup, claim.base, "memory_share")
        return f"{base} does not queue here yet: TTFT {waits:.2f} s, KV {full:.0%} in use"
    own, again = (
        found.mean(setup, claim.system, name) for name in ("ttft_mean", "recompute_share")
    )
    both = f"TTFT {waits:.1f} s with {base}, {own:.1f} s with LAMPS"
    if own > QUEUES_SECONDS:
        return f"both queue ({both}); LAMPS recomputes {again:.0%} of its tokens"
    return f"only {base} queues ({both})"


def _figure_7(found: Found) -> Iterator[Row]:
    setups = _setups(7, found, (LAMPS, *BASES))
    if GPTJ_SINGLE_5 not in setups:
        return
    for measure in FIGURES[7].measures:
        best = [
            str(setup)
            for setup in setups
            if found.mean(setup, LAMPS, measure)
            <= min(found.mean(setup, base, measure) for base in BASES)
        ]
        words = ", ".join(best) or "none"
        yield Row(f"where LAMPS has the best mean {MEASURES[measure]}", "everywhere", words)
    for setup in [each for each in setups if each.machine == GPTJ and each != GPTJ_SINGLE_5]:
        ours = found.mean(setup, LAMPS, "latency_mean")
        single = found.mean(GPTJ_SINGLE_5, LAMPS, "latency_mean")
        yield Row(f"{setup}: LAMPS' latency / on single-API", "above 1", ours / single)


def _figure_9(found: Found) -> Iterator[Row]:
    without, chosen = THRESHOLD_NAMES[0], THRESHOLD_NAMES[100]
    for setup in _setups(9, found, THRESHOLD_NAMES.values()):
        waits, steps, busy, seconds = (
            found.mean(setup, chosen, name)
            for name in ("ttft_mean", "steps", "busy_share", "simulated_seconds")
        )
        why = f"100 steps last {100 * busy * seconds / steps:.1f} s, the mean TTFT is {waits:.1f} s"
        for name, paper in (("latency_p99", "below 1"), ("sessions_per_second", "above 1")):
            ours = found.quotient(setup, chosen, without, name).mean
            yield Row(f"{setup}: {MEASURES[name]}, threshold 100 / none", paper, ours, why)
        for name, sign in (("latency_p99", 1), ("latency_mean", 1), ("sessions_per_second", -1)):
            worth = {
                steps: sign * found.mean(setup, system, name)
                for steps, system in THRESHOLD_NAMES.items()
            }
            best = min(worth, key=lambda steps, worth=worth: worth[steps])
            yield Row(f"{setup}: best threshold by {MEASURES[name]}", "100", str(best or "none"))


def _figure_10(found: Found) -> Iterator[Row]:
    alone, passing = "lamps-handling", "lamps-handling-backfilled"
    for setup in _setups(10, found, (INFERCEPT, alone, passing, LAMPS)):
        for measure in ("latency_mean", "ttft_mean"):
            name = f"{setup}: {MEASURES[measure]}"
            ours = found.quotient(setup, alone, INFERCEPT, measure).mean
            again = [found.mean(setup, each, "recompute_share") for each in (alone, INFERCEPT)]
            why = f"recomputes {again[0]:.0%} of its tokens, InferCept {again[1]:.0%}"
            yield Row(f"{name}, LAMPS w/o scheduling / InferCept", "slightly above 1", ours, why)
            passes = found.quotient(setup, passing, alone, measure).mean
            order = found.quotient(setup, LAMPS, passing, measure).mean
            why = f"{passes:.2f} by passing who does not fit, times {order:.2f} by the order"
            yield Row(f"{name}, LAMPS / w/o scheduling", "below 1", passes * order, why)


def _figure_11(found: Found) -> Iterator[Row]:
    names = {error: mistaken(error).name for error in ERRORS}
    arrival = "lamps-handling-backfilled"
    for setup in _setups(11, found, (LAMPS, arrival, *names.values())):
        order = found.quotient(setup, LAMPS, arrival, "latency_median").mean
        why = f"without errors the ranking makes the median {order:.2f} of what it is by arrival"
        for error, name in names.items():
            large = error >= LARGE_ERROR
            for measure, word in (("latency_median", "above"), ("sessions_per_second", "below")):
                ours = found.quotient(setup, name, LAMPS, measure).mean
                paper = f"{word} 1" if large else "about 1"
                yield Row(
                    f"{setup}: {MEASURES[measure]}, error {error:.0%} / none", paper, ours, why
                )


def _setups(number: int, found: Found, systems: Iterable[str]) -> list[Setup]:
    """Return the setups of a figure on which all of these systems have run."""
    known = dict.fromkeys(setup for setup, _ in FIGURES[number].setups(quick=False))
    needed = tuple(systems)
    return [setup for setup in known if all(found.has(setup, system) for system in needed)]
