"""Which requests are sent to measure the steps of an engine, and what their times say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from caesura.scheduler.calibration import Step

BATCHES = (1, 2, 4, 8, 16, 48, 128)
CONTEXTS = (24, 600)
PROMPTS = (32, 64, 128, 256, 512, 1024)
FEW, MANY = 4, 28
"""Tokens that a batch decodes: the difference of both gives the time of a decoding step."""

REPEATS = 2
MAX_HELD = 0.7
"""The share of the KV cache that a batch may fill."""


@dataclass(frozen=True, slots=True)
class Load:
    """`requests` requests at once, with prompts of `prompt` tokens, that decode `output` tokens."""

    requests: int
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        """Return the tokens of context that it holds at its end."""
        return self.requests * (self.prompt + self.output)


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds that a load took, and the tokens of one of its prompts."""

    seconds: float
    prompt: int


def loads(kv_tokens: int, longest: int, most_running: int) -> list[Load]:
    """Return the loads to measure, those with the least work first.

    Batches that decode come in pairs of `FEW` and `MANY` tokens; single prompts decode one token.
    """
    room = MAX_HELD * kv_tokens
    found = [
        Load(count, context, output)
        for count in BATCHES
        for context in CONTEXTS
        for output in (FEW, MANY)
        if count <= most_running and Load(count, context, MANY).tokens <= room
    ]
    found += [Load(1, prompt, 1) for prompt in PROMPTS if prompt + 1 <= room]
    fitting = [load for load in found if load.prompt + MANY + 64 <= longest]
    return sorted(fitting, key=lambda load: (load.tokens, load.output))


def steps_of(times: Mapping[Load, Sequence[Taken]]) -> list[Step]:
    """Return (query tokens, tokens of context, seconds) of steps from the times of loads.

    A decoding step takes the difference of two loads over the difference of their tokens. A prefill
    takes its load's time, less what a request costs beside its steps; that is found with the
    shortest load of a single request that decodes.
    """
    found: list[Step] = []
    for load, taken in times.items():
        other = Load(load.requests, load.prompt, FEW)
        if load.output == MANY and other in times:
            seconds = (_seconds(taken) - _seconds(times[other])) / (MANY - FEW)
            context = _prompt(taken) + (FEW + MANY) // 2
            if seconds > 0:
                found.append((load.requests, load.requests * context, seconds))
    beside = _beside(times, found)
    for load, taken in times.items():
        seconds = _seconds(taken) - beside
        if load.output == 1 and seconds > 0:
            prompt = _prompt(taken)
            found.append((prompt, prompt, seconds))
    return found


def _beside(times: Mapping[Load, Sequence[Taken]], steps: Sequence[Step]) -> float:
    """Return the seconds of a single request that are no step's: HTTP, templates, and tokens.

    Its short prompt counts as a step like its decodes.
    """
    single = [(load, taken) for load, taken in times.items() if load.requests == 1]
    short = min((each for each in single if each[0].output == FEW), key=lambda each: each[0].prompt)
    decode = min((step for step in steps if step[0] == 1), key=lambda step: step[1], default=None)
    return 0.0 if decode is None else max(0.0, _seconds(short[1]) - FEW * decode[2])


def _seconds(taken: Sequence[Taken]) -> float:
    return min(each.seconds for each in taken)


def _prompt(taken: Sequence[Taken]) -> int:
    return int(median(each.prompt for each in taken))
