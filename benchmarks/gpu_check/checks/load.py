"""Sessions with tools under load: Caesura, stock vLLM, and stock vLLM with native offloading."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.engines import BLOCK_SIZE
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.handling import STOCK
from benchmarks.handling.figures import figures as figures_of
from benchmarks.handling.mix import Mix
from benchmarks.handling.run import Plan, run
from benchmarks.handling.speed import measure_speed, saturation
from benchmarks.handling.systems import Settings
from benchmarks.handling.workload import counted, poisson
from benchmarks.pairs import ratio

LOAD = 0.5
"""Of the rate that would keep an engine busy that computes nothing twice."""
SPEED_SESSIONS = 60
MOST_ROUNDS = 4
TAIL = 0.4
"""Sessions count whose tools end within so many windows behind the window."""
SHOWN = {
    "latency_mean": "latency, mean s",
    "latency_p99": "p99 s",
    "ttft_first_mean": "TTFT first, mean s",
    "ttft_resumed_mean": "TTFT resumed, mean s",
    "recomputed_share": "recomputed",
    "sessions_per_second": "sessions/s",
}


async def check(scale: Scale, seconds: float) -> Finding:
    """Serve the same sessions at the same moments by each system, round by round."""
    end = time.perf_counter() + seconds
    settings = Settings(
        blocks=scale.load_pool,
        model=scale.model,
        batched_tokens=2048 if scale.on_device else 512,
        sequences=256 if scale.on_device else 64,
        host_gib=32 if scale.on_device else 1,
        context_tokens=scale.load_context,
        eager=not scale.on_device,
        asynchronous=scale.on_device,
    )
    seen: dict[str, list[dict[str, float]]] = {system: [] for system in scale.load_systems}
    with tempfile.TemporaryDirectory() as folder:
        rate = await _rate(scale, settings, Path(folder))
        took = 0.0
        for index in range(MOST_ROUNDS):
            began = time.perf_counter()
            if index and began + took > end:
                break
            order = list(seen) if index % 2 == 0 else list(reversed(seen))
            for system in order:
                plan = _plan(scale, system, rate, index)
                made = await run(plan, settings, Path(folder), lambda done: None)
                seen[system].append(figures_of(made, scale.window_seconds))
            took = time.perf_counter() - began
    return _finding(scale, rate, seen)


def _mix(scale: Scale) -> Mix:
    return Mix(scale.token_scale, scale.pause_scale, scale.load_context)


async def _rate(scale: Scale, settings: Settings, folder: Path) -> float:
    speed, _ = await measure_speed(settings, folder)
    return saturation(poisson(_mix(scale).draw, 1.0, SPEED_SESSIONS, seed=0), speed)


def _plan(scale: Scale, system: str, rate: float, index: int) -> Plan:
    window = scale.window_seconds
    sessions = poisson(_mix(scale).draw, LOAD * rate, window, seed=100 + index)
    chosen = counted(sessions, 0.1 * window, (1 + TAIL) * window)
    return Plan(system, LOAD, index, sessions, chosen, 2.5 * window, 100 + index)


def _finding(scale: Scale, rate: float, seen: dict[str, list[dict[str, float]]]) -> Finding:
    rounds = len(seen[STOCK])
    rows = [
        (system, *(f"{sum(run[key] for run in runs) / rounds:.3g}" for key in SHOWN))
        for system, runs in seen.items()
    ]
    title = (
        f"InferCept's six tools at {LOAD:g} of {rate:.2f} sessions/s, {rounds} rounds,"
        f" {scale.load_pool} blocks of {BLOCK_SIZE}; means. Stock: prefix caching and chunked"
        " prefill on, one request per turn."
    )
    tables = [Rows(title, ("system", *SHOWN.values()), rows)]
    figures: dict[str, Any] = {"rate": rate, "rounds": rounds}
    ratios = []
    for system in seen:
        if system == "caesura":
            continue
        cells = []
        for key in ("latency_mean", "latency_p99", "ttft_first_mean", "ttft_resumed_mean"):
            pairs = ([run[key] for run in seen[name]] for name in ("caesura", system))
            told = ratio(*pairs)
            figures[f"{key}_to_{system}"] = told.median
            cells.append(str(told))
        ratios.append((f"caesura / {system}", *cells))
    names = ("ratio", "latency, mean", "p99", "TTFT first", "TTFT resumed")
    tables.append(Rows("Ratios, round by round.", names, ratios))
    summary = f"Mean latency is {figures['latency_mean_to_stock']:.2f} of stock vLLM's."
    return Finding("measured", summary, tables, figures)
