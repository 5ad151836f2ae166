"""Pauses, swaps and resumes under load change no token, however the engine runs its steps."""

import asyncio
from typing import Any

from benchmarks.gpu_check.engines import engine_args, family_args, ours, scarce
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.talks import Compared, Talk, draw, foretell, live
from benchmarks.gpu_check.turn import Turn
from caesura.intercept.kv.costs import CostModel

TURNS = 4
CONTEXT_TOKENS = 2048
MOST_TIES = 0.25
"""The share of stretches that may be ties, beyond which a check says nothing."""
DEAR = CostModel(0.01, 0.01, 0.01, 0.0, saturation=64, out_rate=1e6, in_rate=1e6)
"""What the scheduler is told of costs: recomputing is so dear that it swaps where it can. On a
device it would recompute a tiny model's context sooner than copy it."""

ON_DEVICE: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("as by default (CUDA graphs, asynchronous)", {}),
    "eager": ("eager, one step at a time", {"enforce_eager": True, "async_scheduling": False}),
    "stepwise": ("CUDA graphs, one step at a time", {"async_scheduling": False}),
    "speculation": (
        "speculation (n-gram)",
        {
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_max": 2,
            }
        },
    ),
}
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("asynchronous", {"async_scheduling": True}),
    "stepwise": ("one step at a time", {"async_scheduling": False}),
}
"""vLLM's CPU build captures no graphs, and its n-gram speculation has a process of its own."""
LAYOUTS = {
    "windows": ("windows beside full attention", "Gemma 3"),
    "recurrent": ("recurrent state beside full attention", "Qwen3-Next"),
}
"""Families with several groups of KV cache; each runs asynchronously, as by default on a device."""


async def check(scale: Scale, turn: Turn, part: str) -> Finding:
    """Compare sessions on the engine that `part` names, in a pool too small for all of them."""
    usual = engine_args(scale, scale.exact_model, CONTEXT_TOKENS, scale.exact_pool, "float32")
    if part in LAYOUTS:
        name, family = LAYOUTS[part]
        args = family_args(family, usual)
        return await compare(scale, f"{name} ({family})", family, args)
    options = ON_DEVICE if scale.on_device else SMALL
    if part not in options:
        return Finding("skipped", f"{part}: needs a GPU.")
    name, more = options[part]
    return await compare(scale, name, scale.exact_model, {**usual, **more})


async def compare(scale: Scale, name: str, model: str, args: dict[str, Any]) -> Finding:
    """Run the sessions of all talks at once in an engine; hold them against their stretches."""
    found = await _run(scale, model, args)
    handled = ", ".join(f"{count} {how}" for how, count in sorted(found.handlings.items()))
    stretches = found.equal + found.ties + len(found.different)
    counts = (stretches, found.equal, found.ties, len(found.different))
    columns = ("engine", "stretches", "equal", "ties", "different", "resumes")
    row = [name, *map(str, counts), handled]
    table = Rows("Stretches between pauses, against the same context from scratch.", columns, [row])
    swapped = found.handlings.get("swap", 0)
    figures: dict[str, float | str | bool] = {
        "different": len(found.different),
        "swapped": swapped,
    }
    if found.different:
        first = f"{name}: {found.different[0]} ({len(found.different)} in all)."
        return Finding("failed", first, [table], figures)
    if found.ties > MOST_TIES * stretches:
        told = f"{name}: {found.ties} of {stretches} stretches are ties."
        return Finding("failed", told, [table], figures)
    if not swapped:
        told = f"{name}: no pause was swapped, since the pool was too large."
        return Finding("failed", told, [table], figures)
    return Finding("passed", "All stretches are equal or ties.", [table], figures)


async def _run(scale: Scale, model: str, args: dict[str, Any]) -> Compared:
    compared = Compared()
    longest = CONTEXT_TOKENS // TURNS - 64
    pool = await scarce(model, args, scale.exact_sessions)
    async with ours(model, pool, {"handling": "swap"}, host_gib=1) as engine:
        await engine.command_all({"command": "calibrate", "cost": DEAR.to_wire()})
        talks: list[Talk] = []
        for number in range(scale.exact_sessions):
            talks.append(draw(f"talk-{number}", number, TURNS, longest))
            await foretell(engine.llm, talks[-1])
        await engine.llm.reset_prefix_cache()
        await asyncio.gather(*(live(engine.llm, talk, compared) for talk in talks))
    return compared
