"""Measuring steps: prefill chunks and decode batches of many sizes, on short and long contexts."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log2
from statistics import median

from caesura.scheduler.calibration import Step
from caesura.scheduler.vllm.client.measuring.traffic import Traffic

Progress = Callable[[float, str], None]
"""Is told how much is done, from 0 to 1, and what is being done."""

SMALLEST_PROMPT = 16
DECODED = 12
"""Tokens that a batch decodes; half as many will do for a coarse measurement."""
MOST_SEQUENCES = 256
LONGEST = 8192
BANDS = 8
"""Contexts within an eighth of an octave count as the same."""
ENOUGH = 16
"""So many medians can do without what happened once only."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine takes: tokens in a step, sequences at once, tokens of context and of KV."""

    step: int
    sequences: int
    context: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that come at once: so many, with a prompt of so many tokens, that decode so many.

    `behind` is how many tokens of context are there already, computed before.
    """

    sequences: int
    prompt: int
    decoded: int
    behind: int = 0

    @property
    def work(self) -> int:
        """Tokens to compute, roughly."""
        return self.sequences * self.prompt + self.behind + self.decoded


def loads(limits: Limits, coarse: bool) -> list[Load]:
    """Return what to measure, the least work first; a `coarse` measurement has fewer sizes."""
    longest = min(limits.context - DECODED - 2, limits.capacity // 2, LONGEST)
    factor, decoded = (4.0, DECODED // 2) if coarse else (2.0, DECODED)
    found = [Load(1, size, 1) for size in sizes(SMALLEST_PROMPT, min(limits.step, longest), factor)]
    behind = longest // 2
    found += [
        Load(1, size, 1, behind)
        for size in sizes(SMALLEST_PROMPT, min(limits.step, longest - behind), 2 * factor)
    ]
    most = min(limits.sequences, MOST_SEQUENCES)
    for context in {SMALLEST_PROMPT, longest // 4, longest // (4 if coarse else 2)}:
        fitting = min(most, limits.capacity * 3 // 4 // (context + DECODED))
        found += [Load(size, context, decoded) for size in sizes(1, fitting, factor)]
    return sorted(set(found), key=lambda load: load.work)


def sizes(least: int, most: int, factor: float) -> Iterator[int]:
    """Yield sizes that grow by `factor`, the largest too."""
    size = float(least)
    while size < most:
        yield int(size)
        size = max(size * factor, int(size) + 1)
    if most >= least:
        yield most


async def measure_steps(
    traffic: Traffic, limits: Limits, seconds: float, coarse: bool, progress: Progress
) -> list[Step]:
    """Spend about so many seconds; return the median of each size, warm-up left out.

    A first round leaves out what would take too long; further rounds follow while there is time.
    """
    chosen, began = loads(limits, coarse), time.monotonic()
    for load in chosen[:: max(1, len(chosen) // 4)][:2]:
        await _run(traffic, load)
    await traffic.engine.command("samples")
    steps: list[Step] = []
    first, pace = True, 0.0
    while first or chosen:
        for index, load in enumerate(chosen):
            spent = time.monotonic() - began
            if spent + pace * load.work > seconds and (index > 8 or not first):
                if first:
                    chosen = chosen[:index]
                    break
                return medians(steps)
            progress(min(1.0, spent / seconds), "steps")
            await _run(traffic, load)
            pace = (time.monotonic() - began - spent) / load.work
            reply = await traffic.engine.command("samples")
            steps += [(int(t), int(c), float(s)) for t, c, s in reply["steps"]]
        first = False
    return medians(steps)


async def _run(traffic: Traffic, load: Load) -> None:
    prefix = traffic.prompt(load.behind)
    if prefix:
        await traffic.decode([prefix], 1)
    prompts = [prefix + traffic.prompt(load.prompt) for _ in range(load.sequences)]
    await traffic.decode(prompts, load.decoded)


def medians(steps: Iterable[Step], enough: int = ENOUGH) -> list[Step]:
    """Return one step for all that took as many tokens over about as much context.

    What happened once only, as requests came and went, is left out if `enough` is left.
    """
    bands: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for step in steps:
        bands[step[0], round(BANDS * log2(1 + step[1]))].append(step)
    often = [band for band in bands.values() if len(band) > 1]
    return [
        (band[0][0], round(median(step[1] for step in band)), median(step[2] for step in band))
        for band in (often if len(often) >= enough else bands.values())
    ]
