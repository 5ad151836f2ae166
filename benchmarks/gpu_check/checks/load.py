"""Sessions with tools under load: Caesura, stock vLLM, and stock vLLM with native offloading."""

import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.gpu_check.engines import BLOCK_SIZE, greedy, tokens_input
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling import STOCK, SYSTEMS
from benchmarks.handling.drive import Driver
from benchmarks.handling.figures import figures as figures_of
from benchmarks.handling.ledger import new_ledger, read_ledger
from benchmarks.handling.mix import Mix
from benchmarks.handling.model import WORDS
from benchmarks.handling.run import Plan
from benchmarks.handling.speed import BUSY_BATCH, Stamps, saturation, step_seconds
from benchmarks.handling.systems import Settings, engine
from benchmarks.handling.workload import Speed, counted, poisson
from benchmarks.pairs import ratio
from benchmarks.plain import one_request

LOAD = 0.5
"""Of the rate that would keep an engine busy that computes nothing twice."""
SPEED_SESSIONS = 60
SPEED_PROMPT, SPEED_PROMPTS, SPEED_CONTEXT, SPEED_DECODED = 512, 6, 200, 48
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


async def check(scale: Scale, turn: Turn) -> Finding:
    """Serve the same sessions at the same moments by each system, round by round.

    All engines stay up, so that rounds cost no starts; before each the prefix cache is emptied.
    """
    settings = Settings(
        blocks=scale.load_pool,
        model=scale.model,
        batched_tokens=2048 if scale.on_device else 512,
        sequences=256 if scale.on_device else 64,
        host_gib=16 if scale.on_device else 1,
        context_tokens=scale.load_context,
        eager=not scale.on_device,
        asynchronous=scale.on_device,
        calibration=str(turn.calibration) if turn.calibration.exists() else None,
    )
    seen: dict[str, list[dict[str, float]]] = {system: [] for system in scale.load_systems}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ledgers = {system: new_ledger(folder / system) for system in seen}
        engines = {
            system: await stack.enter_async_context(engine(system, settings, ledgers[system]))
            for system in seen
        }
        end = await turn.begin() + time.perf_counter()
        sessions = poisson(_mix(scale).draw, 1.0, SPEED_SESSIONS, seed=0)
        rate = saturation(sessions, await _speed(engines[STOCK]))
        took = 0.0
        for index in range(MOST_ROUNDS):
            began = time.perf_counter()
            if index and began + took > end:
                break
            order = list(seen) if index % 2 == 0 else list(reversed(seen))
            for system in order:
                plan = _plan(scale, system, rate, index)
                made = await _run(plan, engines[system], ledgers[system])
                seen[system].append(figures_of(made, scale.window_seconds))
            took = time.perf_counter() - began
    return _finding(scale, rate, seen)


async def _run(plan: Plan, llm: AsyncLLM, ledger: Path) -> dict[str, Any]:
    """Serve the plan's sessions until all that count are done; return what was seen."""
    await llm.reset_prefix_cache()
    before = read_ledger(ledger)
    driver = Driver(llm, pausing=SYSTEMS[plan.system] is not None)
    running = {asyncio.create_task(driver.run(each)): each.key for each in plan.sessions}
    counted_tasks = [task for task, key in running.items() if key in plan.counted]
    try:
        async with asyncio.timeout(plan.longest_seconds):
            await asyncio.gather(*counted_tasks)
    except TimeoutError:
        pass
    finally:
        seconds = driver.now()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    after = read_ledger(ledger)
    return {
        "seconds": seconds,
        "ledger": {name: after[name] - before[name] for name in after},
        "sessions": [
            {**asdict(record), "counted": record.key in plan.counted} for record in driver.records
        ],
    }


async def _speed(llm: AsyncLLM) -> Speed:
    """Return what prefills and steps cost on an engine that is warm."""
    rng = random.Random(0)

    async def stamps() -> Stamps:
        words, said, taken = rng.choices(WORDS, k=SPEED_CONTEXT), 0, []
        request = llm.generate(tokens_input(words), greedy(SPEED_DECODED), f"speed-{rng.random()}")
        async for output in request:
            said += len(output.outputs[0].token_ids)
            taken.append((time.perf_counter(), said))
        return taken

    async def streams() -> list[Stamps]:
        return await asyncio.gather(*(stamps() for _ in range(BUSY_BATCH)))

    await streams()
    busy = await step_seconds(streams, SPEED_DECODED // 2)
    prompts = [rng.choices(WORDS, k=SPEED_PROMPT) for _ in range(SPEED_PROMPTS)]
    first = [(await one_request(llm, prompt, 1))[1] for prompt in prompts]
    return Speed(statistics.median(first) / SPEED_PROMPT, busy / BUSY_BATCH, busy)


def _mix(scale: Scale) -> Mix:
    return Mix(scale.token_scale, scale.pause_scale, scale.load_context)


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
