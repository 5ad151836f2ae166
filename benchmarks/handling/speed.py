"""What the model costs on this machine, and the arrival rate that follows from it."""

import asyncio
import itertools
import random
import statistics
import time
from pathlib import Path

from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.handling import STOCK
from benchmarks.handling.ledger import new_ledger
from benchmarks.handling.model import WORDS
from benchmarks.handling.systems import Settings, engine, roomy
from benchmarks.handling.workload import Session, Speed

BATCHES = (1, 8, 16, 32)
BUSY_BATCH = 16
"""Sequences in a step of an engine that is busy all the time, for the estimate of saturation."""
PROMPT, CONTEXT, DECODED, PROMPTS = 512, 200, 48, 6


async def measure_speed(settings: Settings, directory: Path) -> tuple[Speed, dict[str, float]]:
    """Start an engine with room for everybody; return its speed, and what was measured.

    The second of two passes counts, since the first one warms up.
    """
    ledger = new_ledger(directory / "ledger")
    async with engine(STOCK, roomy(settings), ledger) as llm:
        for salt in range(2):
            rng = random.Random(salt)
            prefill = await _prefill_seconds(llm, rng)
            steps = {batch: await _step_seconds(llm, rng, batch) for batch in BATCHES}
    measured = {"prefill_tokens_per_second": 1 / prefill}
    measured |= {f"step_seconds_{batch}": seconds for batch, seconds in steps.items()}
    busy = steps[BUSY_BATCH]
    return Speed(prefill, busy / BUSY_BATCH, busy), measured


def saturation(sessions: list[Session], speed: Speed) -> float:
    """Sessions per second that keep the engine busy all the time, if it computes nothing twice."""
    return 1 / statistics.fmean(speed.work_seconds(session) for session in sessions)


async def _prefill_seconds(llm: AsyncLLM, rng: random.Random) -> float:
    began = time.perf_counter()
    for _ in range(PROMPTS):
        await _stamps(llm, rng, PROMPT, 1)
    return (time.perf_counter() - began) / (PROMPTS * PROMPT)


async def _step_seconds(llm: AsyncLLM, rng: random.Random, batch: int) -> float:
    """The median time between two tokens of a request, once all of them decode."""
    streams = await asyncio.gather(*(_stamps(llm, rng, CONTEXT, DECODED) for _ in range(batch)))
    return statistics.median(
        later - earlier
        for stamps in streams
        for earlier, later in itertools.pairwise(stamps[DECODED // 2 :])
    )


async def _stamps(llm: AsyncLLM, rng: random.Random, prompt: int, decoded: int) -> list[float]:
    """Run a request; return when its outputs came."""
    words = rng.choices(WORDS, k=prompt)
    params = SamplingParams(
        max_tokens=decoded, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    outputs = llm.generate(tokens_input(words), params, f"speed-{rng.getrandbits(64):x}")
    return [time.perf_counter() async for _ in outputs]
