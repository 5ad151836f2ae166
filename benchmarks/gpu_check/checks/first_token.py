"""Time to first token of single requests, Caesura against stock vLLM, in pairs."""

import random
import time

from benchmarks.gpu_check.engines import BLOCK_SIZE, engine_args, ours, stock
from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn
from benchmarks.handling.model import WORDS
from benchmarks.pairs import ratio
from benchmarks.plain import one_request

DECODED = 32
WARM_UP = 2


async def check(scale: Scale, turn: Turn) -> Finding:
    """Time single requests on two engines side by side, in changing order."""
    blocks = 8 * (scale.first_token_prompt + DECODED) // BLOCK_SIZE
    args = engine_args(scale, scale.model, scale.first_token_prompt + 2 * DECODED, blocks)
    seen: dict[str, list[tuple[float, float]]] = {"stock": [], "caesura": []}
    rng = random.Random(0)
    async with stock(scale.model, args) as plain, ours(scale.model, args, {}, 1) as engine:
        engines = {"stock": plain, "caesura": engine.llm}
        end = await turn.begin() + time.perf_counter()
        for index in range(-WARM_UP, scale.pairs):
            words = rng.choices(WORDS, k=scale.first_token_prompt)
            for name in list(engines) if index % 2 else list(reversed(engines)):
                timed = await one_request(engines[name], words, DECODED)
                if index >= 0:
                    seen[name].append(timed)
            if index > 2 and time.perf_counter() > end:
                break
    rows, figures = [], {}
    for place, what in enumerate(("latency", "TTFT")):
        mine, theirs = ([each[place] for each in seen[name]] for name in ("caesura", "stock"))
        told = ratio(mine, theirs)
        rows.append([what, f"{1e3 * sorted(theirs)[len(theirs) // 2]:.1f}", str(told)])
        figures[f"{what.lower()}_ratio"] = told.median
    title = (
        f"One request at a time, {scale.first_token_prompt} tokens in, {DECODED} out;"
        f" ratio Caesura / stock, median and middle half of {len(seen['stock'])} pairs."
    )
    table = Rows(title, ("what", "stock, ms", "ratio"), rows)
    return Finding("measured", f"TTFT is {rows[1][2]} of stock vLLM's.", [table], figures)
