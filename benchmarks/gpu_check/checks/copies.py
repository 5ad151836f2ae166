"""What copies of KV cost beside decoding: their share of the link, and how they slow steps down."""

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.gpu_check.checks.machine import link
from benchmarks.gpu_check.engines import BLOCK_SIZE, engine_args, greedy, ours, tokens_input
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling.drive import resume_of, sampling
from benchmarks.handling.model import WORDS
from benchmarks.handling.workload import Segment
from benchmarks.pairs import ratio
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.scheduler.vllm.client.request import LiveRequest

DECODED = 192
"""Tokens that each of the other requests decodes in a round."""
COPIED_SESSIONS = 4
ROUNDS = 3
RESULT = 32
MOST_TURNS = 20
SAID = 8
PAUSE_SECONDS = 0.05
TOOL = "math"
HOST_GIB = 16
SMALL_HOST_GIB = 1


@dataclass
class Round:
    """The seconds between two tokens of the other requests, and the tokens that were loaded."""

    gaps: list[float] = field(default_factory=list)
    loaded: int = 0


async def check(scale: Scale, turn: Turn) -> Finding:
    """Calibrate an engine's link; then compare steps beside swapped and beside kept sessions."""
    context = scale.copies_context + MOST_TURNS * (RESULT + SAID)
    beside = scale.copies_decoding * (DECODED + 64)
    # Half of the sessions fit, so that each that comes back takes the place of another.
    small, large = (
        engine_args(scale, scale.model, context, (tokens + beside) // BLOCK_SIZE + 16)
        for tokens in (COPIED_SESSIONS * scale.copies_context // 2, COPIED_SESSIONS * context)
    )
    host_gib = HOST_GIB if scale.on_device else SMALL_HOST_GIB
    async with (
        ours(scale.model, small, {"handling": "swap"}, host_gib) as swapping,
        ours(scale.model, large, {"handling": "preserve"}, host_gib) as keeping,
    ):
        end = await turn.begin() + time.perf_counter()
        shares, share_rows = await _shares(scale, swapping, turn)
        engines = {"swap": swapping.llm, "preserve": keeping.llm}
        seen: dict[str, list[Round]] = {name: [] for name in engines}
        for index in range(-1, ROUNDS):
            for name in list(engines) if index % 2 else list(reversed(engines)):
                found = await _round(engines[name], scale, index)
                if index >= 0:
                    seen[name].append(found)
            if index > 0 and time.perf_counter() > end:
                break
    slower, slower_rows = _slowdown(seen)
    columns = ("copies", "GB/s beside steps", "idle", "the link", "share beside", "share idle")
    tables = [
        Rows("Copies of KV, against plain copies of pinned memory.", columns, share_rows),
        Rows(
            f"{scale.copies_decoding} requests decode beside {COPIED_SESSIONS} sessions of"
            f" {scale.copies_context} tokens that pause and come back.",
            ("time between tokens", "kept, ms", "ratio swapped / kept"),
            slower_rows,
        ),
    ]
    if not slower["loaded_tokens"]:
        return Finding("failed", "No KV was loaded from the host.", tables, {**shares, **slower})
    summary = (
        f"Copies reach {shares['in_share']:.0%} of the link beside steps, which take"
        f" {slower['median_ratio']:.2f} times as long."
    )
    return Finding("measured", summary, tables, {**shares, **slower})


async def _shares(
    scale: Scale, engine: VllmEngine, turn: Turn
) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    found = await engine.measure(quick=True, progress=lambda share, what: None)
    found.save(turn.calibration)
    plain_out, plain_in = link(torch.device("cuda" if scale.on_device else "cpu"))
    shares: dict[str, float] = {}
    rows = []
    for name, beside, alone, plain in (
        ("out", found.cost.out_rate, found.out_alone, plain_out),
        ("in", found.cost.in_rate, found.in_alone, plain_in),
    ):
        beside, alone = (rate * found.bytes_per_token / 1e9 for rate in (beside, alone))
        shares[f"{name}_share"] = beside / plain
        cells = (f"{beside:.2f}", f"{alone:.2f}", f"{plain:.2f}")
        rows.append((name, *cells, f"{beside / plain:.0%}", f"{alone / plain:.0%}"))
    return shares, rows


def _slowdown(
    seen: Mapping[str, list[Round]],
) -> tuple[dict[str, float | str | bool], list[tuple[str, ...]]]:
    figures: dict[str, float | str | bool] = {
        "loaded_tokens": sum(each.loaded for each in seen["swap"])
    }
    rows = []
    for what, of in (("median", statistics.median), ("p99", _p99)):
        kept, swapped = ([of(each.gaps) for each in seen[name]] for name in ("preserve", "swap"))
        told = ratio(swapped, kept)
        rows.append((what, f"{1e3 * statistics.median(kept):.2f}", str(told)))
        figures[f"{what}_ratio"] = told.median
    return figures, rows


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


async def _round(llm: AsyncLLM, scale: Scale, index: int) -> Round:
    """Decode some requests while sessions pause and come back; return what was seen."""
    found = Round()
    rng = random.Random(index)
    done = asyncio.Event()
    sessions = [
        asyncio.create_task(_session(llm, scale, f"copied-{index}-{number}", done, found))
        for number in range(COPIED_SESSIONS)
    ]
    others = (
        _other(llm, rng.choices(WORDS, k=32), f"other-{index}-{number}", found)
        for number in range(scale.copies_decoding)
    )
    await asyncio.gather(*others)
    done.set()
    await asyncio.gather(*sessions)
    return found


async def _other(llm: AsyncLLM, words: list[int], name: str, found: Round) -> None:
    outputs = llm.generate(tokens_input(words), greedy(DECODED), name)
    stamps = [time.perf_counter() async for _ in outputs]
    found.gaps += [later - earlier for earlier, later in itertools.pairwise(stamps)]


async def _session(
    llm: AsyncLLM, scale: Scale, name: str, done: asyncio.Event, found: Round
) -> None:
    """Pause and come back until the others are done, or the context is full."""
    rng = random.Random(name)
    segment = Segment(RESULT, SAID, TOOL, PAUSE_SECONDS)
    params = sampling(segment, pausing=True)
    words = rng.choices(WORDS, k=scale.copies_context)
    request = LiveRequest(llm, name, words, params)
    try:
        for _ in range(MOST_TURNS):
            said: list[int] = []
            async for output in request.turn():
                said += output.outputs[0].token_ids
                found.loaded += _loaded(output.kv_transfer_params)
            if done.is_set():
                break
            await asyncio.sleep(PAUSE_SECONDS)
            request.push([said[-1], *rng.choices(WORDS, k=RESULT)], params)
    finally:
        await request.abort()


def _loaded(params: dict[str, Any] | None) -> int:
    return int((resume_of(params) or {}).get("loaded_tokens") or 0)
