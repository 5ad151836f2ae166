"""The measures of a run: latencies, throughput, and the waste of its memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from caesura.scheduler.policy.slo import Slo
from caesura.simulator.results import RunResult, SessionResult


@dataclass(frozen=True, slots=True)
class Figures:
    """The measures of one run.

    `sessions` arrived in the counted span, and `unfinished` of them were cut off. Times are in
    simulated seconds. Latency covers the sessions that ended, from arrival to the end without the
    time of tools; `normalized_latency` is its median per decoded token (InferCept, section 5).
    TTFT covers the sessions with a first token. `..._per_second` count the sessions that ended and
    the tokens that were decoded within the counted span, whatever their arrival.

    `goodput_share` is the share of the counted sessions that met the study's objective in all of
    their segments, and `goodput_sessions` their number per second of the counted span.
    `goodput_tokens` are the decoded tokens per second of the segments that met it. A session that
    was cut off has not met it.

    All other measures cover the whole run, with warm-up and drain. Waste is a share of the KV
    cache's block-seconds, see `Totals`. `recompute_share` is the share of recomputed tokens in all
    query tokens, `busy_share` the share of time in which the device computed, and `memory_share`
    the share of the KV cache in use. `cached_share` is the share of the tokens of prompts and
    results' contexts that needed no computation. Of replicas, `load_variation` is the mean
    coefficient of variation of their requests, and `busy_imbalance` the busy time of the busiest
    over the mean. NaN means that a measure has no value.
    """

    sessions: int
    unfinished: int
    latency_mean: float
    latency_median: float
    latency_p99: float
    ttft_mean: float
    ttft_p99: float
    normalized_latency: float
    sessions_per_second: float
    tokens_per_second: float
    waste_recompute: float
    waste_preserve: float
    waste_stall: float
    recompute_share: float
    preemptions: int
    steps: int
    stall_seconds: float
    busy_share: float
    memory_share: float
    simulated_seconds: float
    wall_seconds: float
    goodput_share: float = math.nan
    goodput_sessions: float = math.nan
    goodput_tokens: float = math.nan
    cached_share: float = math.nan
    load_variation: float = math.nan
    busy_imbalance: float = math.nan


def figures(run: RunResult, warm_up: float, seconds: float, slo: Slo | None = None) -> Figures:
    """Return the measures of a run over the sessions that arrived in [warm_up, seconds).

    If the run was cut off earlier, the span ends there. Sub-agents do not count on their own, since
    their time is part of their parent's. Goodput needs an objective `slo`.
    """
    totals = run.totals
    until = min(seconds, totals.seconds)
    own = [each for each in run.sessions if not each.parent]
    counted = [each for each in own if warm_up <= each.arrival < until]
    ended = [each for each in counted if each.ended > 0]
    started = [each for each in counted if each.segments and each.segments[0][1] > 0]
    latency = [each.latency for each in ended]
    ttft = [each.ttft for each in started]
    good = _goodput(counted, until - warm_up, slo)
    computed = totals.decode_tokens + totals.prefill_tokens + totals.recompute_tokens
    return Figures(
        sessions=len(counted),
        unfinished=len(counted) - len(ended),
        latency_mean=_mean(latency),
        latency_median=_percentile(latency, 50),
        latency_p99=_percentile(latency, 99),
        ttft_mean=_mean(ttft),
        ttft_p99=_percentile(ttft, 99),
        normalized_latency=_percentile(
            [each.normalized_latency for each in ended if each.decode_tokens], 50
        ),
        sessions_per_second=_share(_ended_within(own, warm_up, until), until - warm_up),
        tokens_per_second=_decode_rate(run, warm_up, until),
        goodput_share=good[0],
        goodput_sessions=good[1],
        goodput_tokens=good[2],
        waste_recompute=_share(totals.waste_recompute, totals.total_block_seconds),
        waste_preserve=_share(totals.waste_preserve, totals.total_block_seconds),
        waste_stall=_share(totals.waste_stall, totals.total_block_seconds),
        recompute_share=_share(totals.recompute_tokens, computed),
        preemptions=totals.preemptions,
        steps=totals.steps,
        stall_seconds=totals.stall_seconds,
        busy_share=_share(totals.busy_seconds, totals.seconds),
        memory_share=_share(totals.used_block_seconds, totals.total_block_seconds),
        simulated_seconds=totals.seconds,
        wall_seconds=run.wall_seconds,
        cached_share=_cached(run),
        load_variation=run.load_variation if run.replicas else math.nan,
        busy_imbalance=_imbalance([row["busy_seconds"] for row in run.replicas]),
    )


def _cached(run: RunResult) -> float:
    """Return the share of the tokens before each segment's first that were not computed for it."""
    cached = sum(each.cached_tokens for each in run.sessions)
    return _share(cached, cached + run.totals.prefill_tokens + run.totals.recompute_tokens)


def _imbalance(busy: Sequence[float]) -> float:
    return _share(max(busy) * len(busy), sum(busy)) if busy else math.nan


def _ended_within(sessions: Sequence[SessionResult], begin: float, end: float) -> int:
    return sum(1 for each in sessions if each.ended > 0 and begin <= each.ended < end)


def _goodput(
    counted: Sequence[SessionResult], span: float, slo: Slo | None
) -> tuple[float, float, float]:
    """Return the share of sessions, the sessions and the tokens per second that met `slo`."""
    if slo is None:
        return math.nan, math.nan, math.nan
    met = [each.met(slo) for each in counted]
    good = sum(each.ended > 0 and all(of) for each, of in zip(counted, met, strict=True))
    tokens = sum(
        decoded
        for each, of in zip(counted, met, strict=True)
        for decoded, one in zip(each.segment_tokens, of, strict=False)
        if one
    )
    return _share(good, len(counted)), _share(good, span), _share(tokens, span)


def _decode_rate(run: RunResult, begin: float, end: float) -> float:
    """Return the tokens per second decoded in [begin, end).

    A row of the timeline covers the time since the row before it. A row that crosses an end of the
    span counts in part.
    """
    decoded, before = 0.0, 0.0
    for at, tokens in zip(run.timeline["at"], run.timeline["decode_tokens"], strict=True):
        inside = min(at, end) - max(before, begin)
        if inside > 0:
            decoded += tokens * inside / (at - before)
        before = at
    return _share(decoded, end - begin)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile, interpolated linearly between the two values around it."""
    return float(np.percentile(values, percent)) if values else math.nan


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
