"""What the model costs on this machine, and the arrival rate that follows from it."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
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
from caesura.runtime.errors import UsageError

BATCHES = (1, 8, 16, 32)
BUSY_BATCH = 16
"""Sequences in a step of an engine that is busy all the time, for the estimate of saturation."""
PROMPT, CONTEXT, DECODED, PROMPTS = 512, 200, 48, 6
TRIES = 5
"""How often a batch is run until one of its streams can be timed."""

Stamps = list[tuple[float, int]]
"""When each output of a stream came, in seconds, and how many tokens had come by then."""


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
    """The time between two tokens of a request once all of them decode; the median over them."""

    async def streams() -> list[Stamps]:
        return await asyncio.gather(*(_stamps(llm, rng, CONTEXT, DECODED) for _ in range(batch)))

    return await step_seconds(streams, DECODED // 2)


async def step_seconds(streams: Callable[[], Awaitable[list[Stamps]]], skipped: int) -> float:
    """Return the median of `seconds_per_token` over the streams of a batch.

    A stream that came in one output cannot be timed, and the others count. A batch that has no
    other stream is run again, at most `TRIES` times in all; then this raises `UsageError`.
    """
    for _ in range(TRIES):
        found = [seconds_per_token(stamps, skipped) for stamps in await streams()]
        timed = [seconds for seconds in found if seconds is not None]
        if timed:
            return statistics.median(timed)
    raise UsageError(
        f"all tokens of a request came in one output, {TRIES} times, so that a step cannot be"
        " timed; run this on a machine that is less busy"
    )


def seconds_per_token(stamps: Stamps, skipped: int) -> float | None:
    """Return the mean time between tokens of a stream, from about `skipped` tokens on.

    A busy machine gets several tokens in one output, so that the last one before `skipped` is
    where the time begins. The result is None if all tokens came in one output.
    """
    behind = [stamp for stamp in stamps if stamp[1] <= skipped] or stamps[:1]
    (began, had), (ended, has) = behind[-1], stamps[-1]
    return None if has == had else (ended - began) / (has - had)


async def _stamps(llm: AsyncLLM, rng: random.Random, prompt: int, decoded: int) -> Stamps:
    """Run a request; return when its outputs came, and how many tokens had come by then."""
    words = rng.choices(WORDS, k=prompt)
    params = SamplingParams(
        max_tokens=decoded, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    stamps: Stamps = []
    had = 0
    async for output in llm.generate(tokens_input(words), params, f"speed-{rng.getrandbits(64):x}"):
        had += len(output.outputs[0].token_ids)
        stamps.append((time.perf_counter(), had))
    return stamps
