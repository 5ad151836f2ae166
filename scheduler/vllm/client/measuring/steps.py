"""Measurement of steps: prefill chunks and decode batches of many sizes, at many contexts."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log2
from statistics import median

from caesura.scheduler.calibration import Step
from caesura.scheduler.vllm.client.measuring.traffic import Traffic

Progress = Callable[[float, str], None]
"""Callback that receives the share done, from 0 to 1, and the name of the current phase."""

MIN_PROMPT_TOKENS = 16
DECODED = 12
"""Tokens that a batch decodes; a coarse measurement decodes half as many."""
MAX_SEQUENCES = 256
MAX_CONTEXT_TOKENS = 8192
BANDS = 8
"""Contexts within an eighth of an octave count as the same."""
MIN_MEDIANS = 16
"""With this many medians of several steps, steps that occurred only once are left out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an engine: tokens per step, sequences, context in tokens, KV cache in tokens."""

    step: int
    sequences: int
    context: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Load:
    """Requests sent at once: their number, and the tokens of each prompt and each output.

    `behind` is the number of context tokens that were computed before.
    """

    sequences: int
    prompt: int
    decoded: int
    behind: int = 0

    @property
    def work(self) -> int:
        """The approximate number of tokens to compute."""
        return self.sequences * self.prompt + self.behind + self.decoded


def loads(limits: Limits, coarse: bool) -> list[Load]:
    """Return the loads to measure, least work first; a `coarse` measurement has fewer sizes."""
    longest = min(limits.context - DECODED - 2, limits.capacity // 2, MAX_CONTEXT_TOKENS)
    factor, decoded = (4.0, DECODED // 2) if coarse else (2.0, DECODED)
    chunk = min(limits.step, longest)
    found = [Load(1, size, 1) for size in sizes(MIN_PROMPT_TOKENS, chunk, factor)]
    behind = longest // 2
    found += [
        Load(1, size, 1, behind)
        for size in sizes(MIN_PROMPT_TOKENS, min(limits.step, longest - behind), 2 * factor)
    ]
    most = min(limits.sequences, MAX_SEQUENCES)
    for context in {MIN_PROMPT_TOKENS, longest // 4, longest // (4 if coarse else 2)}:
        fitting = min(most, limits.capacity * 3 // 4 // (context + DECODED))
        found += [Load(size, context, decoded) for size in sizes(1, fitting, factor)]
    return sorted(set(found), key=lambda load: load.work)


def sizes(least: int, most: int, factor: float) -> Iterator[int]:
    """Yield sizes from `least` to `most`, both included, that grow by `factor`."""
    size = float(least)
    while size < most:
        yield int(size)
        size = max(size * factor, int(size) + 1)
    if most >= least:
        yield most


async def measure_steps(
    traffic: Traffic, limits: Limits, seconds: float, coarse: bool, progress: Progress
) -> list[Step]:
    """Measure steps for about `seconds`; return the median of each size, without the warm-up.

    The first round omits loads that would take too long. Further rounds follow while time is left.
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


def medians(steps: Iterable[Step], enough: int = MIN_MEDIANS) -> list[Step]:
    """Return the median step for each number of tokens and band of context.

    Steps that occurred only once, as requests came and went, are omitted if `enough` are left.
    """
    bands: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for step in steps:
        bands[step[0], round(BANDS * log2(1 + step[1]))].append(step)
    often = [band for band in bands.values() if len(band) > 1]
    return [
        (band[0][0], round(median(step[1] for step in band)), median(step[2] for step in band))
        for band in (often if len(often) >= enough else bands.values())
    ]
