"""An engine that sleeps and wakes: its times, its memory, and a session that pauses afterwards."""

import random
import time

import torch

from benchmarks.gpu_check.engines import BLOCK_SIZE, engine_args, greedy, ours, outputs_of
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.talks import Compared, draw, foretell, live
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling.model import WORDS
from caesura.scheduler.vllm.client.engine import VllmEngine

CONTEXT_TOKENS = 2048
LEVEL = 1
"""vLLM's level that keeps the weights on the host and drops the KV cache."""
DECODED = 48


async def check(scale: Scale, turn: Turn) -> Finding:
    """Put an engine to sleep; what it says afterwards must be what it said before."""
    from vllm.platforms import current_platform

    if not current_platform.is_sleep_mode_available():
        return Finding("skipped", "vLLM's sleep mode needs a GPU.")
    blocks = 4 * CONTEXT_TOKENS // BLOCK_SIZE
    args = engine_args(scale, scale.exact_model, CONTEXT_TOKENS, blocks)
    async with ours(scale.exact_model, {**args, "enable_sleep_mode": True}, {}, 1) as engine:
        words = random.Random(1).choices(WORDS, k=512)
        before = await _said(engine, words, "before")
        figures = await _nap(engine)
        after = await _said(engine, words, "after")
        compared = Compared()
        talk = draw("talk", 1, turns=3, longest=400)
        await foretell(engine.llm, talk)
        await live(engine.llm, talk, compared)
    rows = [(name.replace("_", " "), f"{value:.2f}") for name, value in figures.items()]
    table = Rows("", ("what", "value"), rows)
    right = before == after and not compared.different
    figures["equal"] = float(right)
    if not right:
        return Finding("failed", "The engine says other words after its sleep.", [table], figures)
    told = f"Asleep in {figures['sleep_seconds']:.1f} s, awake in {figures['wake_seconds']:.1f} s."
    return Finding("passed", told, [table], figures)


async def _nap(engine: VllmEngine) -> dict[str, float | str | bool]:
    # The first call makes this process's CUDA context, which is no part of the sleep.
    free = torch.cuda.mem_get_info()[0]
    began = time.perf_counter()
    await engine.llm.sleep(LEVEL)
    slept = time.perf_counter()
    gained = torch.cuda.mem_get_info()[0] - free
    waking = time.perf_counter()
    await engine.llm.wake_up()
    woken = time.perf_counter()
    return {
        "sleep_seconds": slept - began,
        "wake_seconds": woken - waking,
        "freed_gib": gained / 2**30,
    }


async def _said(engine: VllmEngine, words: list[int], name: str) -> list[int]:
    outputs = await outputs_of(engine.llm, words, greedy(DECODED), name)
    return [token for output in outputs for token in output.outputs[0].token_ids]
