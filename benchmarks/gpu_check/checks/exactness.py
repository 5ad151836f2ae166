"""Pauses, swaps and resumes under load change no token, however the engine runs its steps."""

import asyncio
from typing import Any

from benchmarks.gpu_check.engines import engine_args, family_args, ours
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.talks import Compared, Talk, draw, foretell, live

TURNS = 4
CONTEXT_TOKENS = 2048
MOST_TIES = 0.25
"""The share of stretches that may be ties, beyond which a check says nothing."""

ON_DEVICE: dict[str, dict[str, Any]] = {
    "as by default (CUDA graphs, asynchronous)": {},
    "eager, one step at a time": {"enforce_eager": True, "async_scheduling": False},
    "CUDA graphs, one step at a time": {"async_scheduling": False},
    "speculation (n-gram)": {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 2,
        }
    },
}
SMALL: dict[str, dict[str, Any]] = {
    "asynchronous": {"async_scheduling": True},
    "one step at a time": {"async_scheduling": False},
}
"""vLLM's CPU build captures no graphs, and its n-gram speculation has a process of its own."""
LAYOUTS = {
    "windows beside full attention": "Gemma 3",
    "recurrent state beside full attention": "Qwen3-Next",
}
"""Families with several groups of KV cache; each runs asynchronously, as by default on a device."""


async def check(scale: Scale, seconds: float) -> Finding:
    """Compare sessions in each variant, in a pool too small for all of them."""
    rows, different, swapped = [], [], 0
    for name, model, args in _variants(scale):
        found = await _variant(scale, model, args)
        handled = ", ".join(f"{count} {how}" for how, count in sorted(found.handlings.items()))
        stretches = found.equal + found.ties + len(found.different)
        rows.append(
            [
                name,
                str(stretches),
                str(found.equal),
                str(found.ties),
                str(len(found.different)),
                handled,
            ]
        )
        different += [f"{name}: {each}" for each in found.different]
        if found.ties > MOST_TIES * stretches:
            different.append(f"{name}: {found.ties} of {stretches} stretches are ties")
        swapped += found.handlings.get("swap", 0)
    columns = ("engine", "stretches", "equal", "ties", "different", "resumes")
    table = Rows("Stretches between pauses, against the same context from scratch.", columns, rows)
    figures = {"different": len(different), "swapped": swapped}
    if different:
        return Finding("failed", f"{different[0]} ({len(different)} in all).", [table], figures)
    if not swapped:
        return Finding("failed", "No pause was swapped: the pool was too large.", [table], figures)
    return Finding("passed", "All stretches are equal or ties.", [table], figures)


def _variants(scale: Scale) -> list[tuple[str, str, dict[str, Any]]]:
    """Return each variant's name, its model, and the arguments of its engine."""
    usual = engine_args(scale, scale.exact_model, CONTEXT_TOKENS, scale.exact_pool)
    options = ON_DEVICE if scale.on_device else SMALL
    variants = [(name, scale.exact_model, {**usual, **more}) for name, more in options.items()]
    return [
        *variants,
        *(
            (f"{name} ({family})", family, family_args(scale, family, usual))
            for name, family in LAYOUTS.items()
        ),
    ]


async def _variant(scale: Scale, model: str, args: dict[str, Any]) -> Compared:
    compared = Compared()
    longest = CONTEXT_TOKENS // TURNS - 64
    async with ours(model, args, {"handling": "swap"}, host_gib=1) as engine:
        talks: list[Talk] = []
        for number in range(scale.exact_sessions):
            talks.append(draw(f"talk-{number}", number, TURNS, longest))
            await foretell(engine.llm, talks[-1])
        await engine.llm.reset_prefix_cache()
        await asyncio.gather(*(live(engine.llm, talk, compared) for talk in talks))
    return compared
