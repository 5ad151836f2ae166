"""A session whose context grows far beyond 8,192 tokens, as a stock request of that length.

vLLM's issue 52471 reports that streaming sessions become slow behind some length, where a graph is
compiled anew. So the time to the first token of each resume is held against its neighbours'.
"""

import random
import statistics
import time
from collections.abc import Sequence

from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.gpu_check.engines import (
    BLOCK_SIZE,
    engine_args,
    greedy,
    ours,
    stock,
    tokens_input,
)
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling.drive import sampling
from benchmarks.handling.model import WORDS
from benchmarks.handling.workload import Segment
from caesura.scheduler.vllm.client.request import LiveRequest

SAID = 8
CLIFF = 5.0
"""A resume that takes this many times as long as its neighbours do is a cliff."""
NEIGHBOURS = 2
PASSES = 2
"""Cliffs count in the last pass only; the first one compiles and warms up."""


async def check(scale: Scale, turn: Turn) -> Finding:
    """Grow one session turn by turn in each engine, and time the first token of each turn."""
    turns = scale.long_context // scale.long_turn
    context = scale.long_context + turns * SAID + BLOCK_SIZE
    args = engine_args(scale, scale.model, context, 2 * context // BLOCK_SIZE + 64)
    given = [random.Random(turn).choices(WORDS, k=scale.long_turn) for turn in range(turns)]
    async with ours(scale.model, args, {}, 1) as engine, stock(scale.model, args) as llm:
        await turn.begin()
        mine = [await _session(engine.llm, given, f"long-{index}") for index in range(PASSES)][-1]
        theirs = [await _anew(llm, given, f"anew-{index}") for index in range(PASSES)][-1]
    rows = [
        (f"{(turn + 1) * scale.long_turn:,}", f"{1e3 * a:.1f}", f"{1e3 * b:.1f}", f"{a / b:.2f}")
        for turn, (a, b) in enumerate(zip(mine, theirs, strict=True))
    ]
    found = cliffs(mine)
    title = f"Each turn brings {scale.long_turn} tokens. Stock: a new request for each turn."
    table = Rows(title, ("context", "session, TTFT ms", "stock, TTFT ms", "ratio"), rows)
    lengths = ", ".join(f"{(turn + 1) * scale.long_turn:,}" for turn in found)
    figures = {"cliffs": len(found), "last_ratio": mine[-1] / theirs[-1]}
    if found and scale.on_device:
        return Finding("failed", f"Resumes are slow at {lengths} tokens.", [table], figures)
    summary = f"Up to {turns * scale.long_turn:,} tokens: {len(found)} cliffs."
    return Finding("passed" if scale.on_device else "measured", summary, [table], figures)


def cliffs(seconds: Sequence[float]) -> list[int]:
    """Return the turns that take `CLIFF` times as long as the median of their neighbours."""
    found = []
    for turn in range(1, len(seconds)):
        near = [
            seconds[other]
            for other in range(max(1, turn - NEIGHBOURS), min(len(seconds), turn + NEIGHBOURS + 1))
            if other != turn
        ]
        if near and seconds[turn] > CLIFF * statistics.median(near):
            found.append(turn)
    return found


async def _session(llm: AsyncLLM, given: Sequence[list[int]], name: str) -> list[float]:
    params = sampling(Segment(len(given[0]), SAID, "math", 0.0), pausing=True)
    request: LiveRequest | None = None
    taken: list[float] = []
    said = [0]
    for words in given:
        began, first = time.perf_counter(), 0.0
        if request is None:
            request = LiveRequest(llm, name, words, params)
        else:
            request.push([said[-1], *words], params)
        said = []
        async for output in request.turn():
            first = first or time.perf_counter() - began
            said += output.outputs[0].token_ids
        taken.append(first)
    assert request is not None
    await request.abort()
    return taken


async def _anew(llm: AsyncLLM, given: Sequence[list[int]], name: str) -> list[float]:
    taken: list[float] = []
    context: list[int] = []
    for turn, words in enumerate(given):
        context += words
        began, first = time.perf_counter(), 0.0
        async for output in llm.generate(
            tokens_input(list(context)), greedy(SAID), f"{name}-{turn}"
        ):
            first = first or time.perf_counter() - began
            context += output.outputs[0].token_ids
        taken.append(first)
    return taken
