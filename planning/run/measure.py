"""Measuring a model's engine on a host: loading, stopping, sleeping, steps and memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from statistics import fmean, median
from typing import Any, Self

import aiohttp

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Model
from caesura.planning.costs.devices import Kind
from caesura.planning.costs.engine import MOST_RUNNING
from caesura.planning.costs.measured import MeasuredEngine, MeasuredSleep, model_name
from caesura.planning.costs.shapes import kv_arguments, longest_of, read_shape
from caesura.planning.run.host import Asking, Endpoint, EngineHost, HostError, Replica
from caesura.planning.run.processes import facts_of
from caesura.planning.run.sleep import LEVELS, SleepRoutes
from caesura.scheduler.calibration import Step, fit

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


MAX_SECONDS = 600.0
"""How long a load may take."""


class Asker(Asking):
    """Sends loads to an engine. An asynchronous context manager.

    Prompts are random numbers, so that no prefix is cached. The tokens of a number are found with
    the first answers. Requests have no seed: vLLM 0.32 ends on processors when the prompt of a
    seeded request is split over steps.
    """

    def __init__(
        self, endpoint: Endpoint, random: Random, temperature: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(MAX_SECONDS, connect_seconds=None)
        self._endpoint = endpoint
        self._clock = clock
        self._random = random
        self._temperature = temperature
        self._fixed, self._each = 12.0, 3.0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._learn_tokens()
        return self

    async def take(self, load: Load) -> Taken:
        """Return how long a load takes; raises `HostError` if the engine fails."""
        words = max(1, round((load.prompt - self._fixed) / self._each))
        texts = [self._text(words) for _ in range(load.requests)]
        began = self._clock()
        prompts = await asyncio.gather(*(self._ask(text, load.output) for text in texts))
        return Taken(self._clock() - began, sum(prompts) // len(prompts))

    async def _learn_tokens(self) -> None:
        """Find the tokens of a prompt of so many numbers, and warm the engine up."""
        few, many = 4, 44
        low = await self._ask(self._text(few), 2)
        high = await self._ask(self._text(many), 2)
        self._each = max(0.5, (high - low) / (many - few))
        self._fixed = max(0.0, low - few * self._each)

    def _text(self, words: int) -> str:
        return " ".join(str(self._random.randrange(100, 1000)) for _ in range(words))

    async def _ask(self, text: str, tokens: int) -> int:
        """Return the tokens of the prompt of a request that decodes exactly so many tokens."""
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "min_tokens": tokens,
            "temperature": self._temperature,
        }
        url, headers = self._endpoint.chat_url, self._endpoint.headers
        try:
            async with self.http.post(url, json=body, headers=headers) as answer:
                held = await answer.json(content_type=None)
                if answer.status != 200:
                    raise HostError(f"the engine refused a request: {held!s:.300}")
                return int(held["usage"]["prompt_tokens"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError) as error:
            raise HostError(f"the engine did not answer a request: {error!r}") from error


MeasureSleeps = Callable[[Endpoint, Callable[[], float]], Awaitable[tuple[MeasuredSleep, ...]]]
"""Times the sleeps of an engine; `measure_sleeps` does."""

Watch = Callable[[float, str], None]
"""Told while a measurement runs: the part that is done, and what is measured now."""

MAX_LOAD_SECONDS = 20.0
"""Requests that would take longer together are left out: on a core, large batches take minutes."""

LOADED_AT_ONCE = 2
"""Engines whose loading is timed together."""

LOADED, TIMED, STOPPED = 0.3, 0.7, 0.75
"""The parts of a measurement that are done after each of its steps."""


@dataclass(frozen=True, slots=True)
class WantedEngine:
    """A model's engine at one tensor-parallel size, to be measured.

    Its requests have a `temperature`, which should be that of the application's.
    """

    model: Model
    degree: int
    temperature: float = 0.0


async def measure_engine(
    host: EngineHost,
    wanted: WantedEngine,
    kind: Kind,
    watch: Watch,
    clock: Callable[[], float] = time.monotonic,
    sleeps: MeasureSleeps | None = None,
) -> MeasuredEngine:
    """Return the measurement of an engine on the first devices of a host.

    The engine is loaded twice: its second loading counts, when files are in memory as in a run
    that changes models. Two are loaded at once then where the host has room for them, since engines
    of a stage load together and slow each other down. With `sleeps` it is also put to sleep and
    woken up. Raises `HostError` for an engine that does not start, answer, or say how large its KV
    cache is.
    """
    model, degree = wanted.model, wanted.degree
    replica = Replica(model, 0, tuple(range(degree)))
    watch(0.0, "loading")
    endpoint, _ = await _loaded(host, replica, clock)
    try:
        facts = await facts_of(endpoint)
        if facts is None or not facts.kv_tokens or not facts.kv_bytes:
            raise HostError(f"{replica.name} does not say how large its KV cache is in its metrics")
        watch(LOADED, "timing steps")
        asker = Asker(endpoint, Random(0), wanted.temperature, clock)
        times = await _time(asker, model, facts.kv_tokens, watch)
        slept = await sleeps(endpoint, clock) if sleeps is not None else ()
    finally:
        began = clock()
        await host.evict(replica)
        stopping = clock() - began
    watch(STOPPED, "loading again")
    loading = await _loading_together(host, model, degree, clock)
    steps, error = _fitted(times, replica.name)
    shape = read_shape(model.path)
    return MeasuredEngine(
        model=model_name(model.path),
        device=kind.name,
        tensor_parallel=degree,
        date=datetime.now(UTC).date().isoformat(),
        steps=steps,
        step_error=round(error, 4),
        kv_tokens=facts.kv_tokens,
        kv_bytes=max(1, facts.kv_bytes // facts.kv_tokens),
        weight_bytes=shape.weight_bytes / degree if shape else 0.0,
        load_seconds=round(loading, 3),
        stop_seconds=round(stopping, 3),
        kv_arguments=kv_arguments(model.arguments),
        sleeps=slept,
    )


def _fitted(times: Mapping[Load, Sequence[Taken]], name: str) -> tuple[CostModel, float]:
    try:
        return fit(steps_of(times))
    except ValueError as error:
        raise HostError(
            f"the steps of {name} cannot be measured ({error}): give it a larger KV cache or a"
            " longer context, and let nothing else run beside it"
        ) from error


async def _loaded(
    host: EngineHost, replica: Replica, clock: Callable[[], float]
) -> tuple[Endpoint, float]:
    """Return a loaded engine's endpoint and the seconds that this took."""
    await host.place(replica)
    began = clock()
    try:
        endpoint = await host.load(replica)
    except BaseException:
        await host.evict(replica)
        raise
    return endpoint, clock() - began


async def _loading_together(
    host: EngineHost, model: Model, degree: int, clock: Callable[[], float]
) -> float:
    """Return the mean seconds of engines that load at once, on devices of their own."""
    count = max(1, min(LOADED_AT_ONCE, host.devices // degree))
    replicas = [
        Replica(model, number, tuple(range(number * degree, (number + 1) * degree)))
        for number in range(count)
    ]
    loading = (_loaded(host, replica, clock) for replica in replicas)
    found = await asyncio.gather(*loading, return_exceptions=True)
    for replica in replicas:
        await host.evict(replica)
    seconds: list[float] = []
    for each in found:
        if isinstance(each, BaseException):
            raise each
        seconds.append(each[1])
    return fmean(seconds)


async def _time(
    asker: Asker, model: Model, kv_tokens: int, watch: Watch
) -> dict[Load, list[Taken]]:
    shape = read_shape(model.path)
    longest = longest_of(model.arguments, shape.longest if shape else kv_tokens)
    chosen = loads(kv_tokens, longest, MOST_RUNNING)
    if not chosen:
        raise HostError(f"{model.name} has a KV cache of {kv_tokens} tokens: too few to measure")
    times: dict[Load, list[Taken]] = defaultdict(list)
    async with asker:
        pace = 0.0
        for number in range(REPEATS):
            for place, load in enumerate(chosen):
                part = (number + place / len(chosen)) / REPEATS
                watch(LOADED + (TIMED - LOADED) * part, "timing steps")
                if (load not in times) if number else (load.tokens * pace > MAX_LOAD_SECONDS):
                    continue
                taken = await asker.take(load)
                pace = taken.seconds / load.tokens
                times[load].append(taken)
    return times


SLEEP_REPEATS = 2


async def measure_sleeps(
    endpoint: Endpoint, clock: Callable[[], float]
) -> tuple[MeasuredSleep, ...]:
    """Return the mean seconds of falling asleep and of waking up, at each level.

    Raises `HostError` for a server without the routes, and for one that does not wake up.
    """
    found = []
    async with aiohttp.ClientSession() as http:
        routes = SleepRoutes(http, endpoint)
        for level in LEVELS:
            sleeps, wakes = [], []
            for _ in range(SLEEP_REPEATS):
                began = clock()
                await routes.sleep(level)
                slept = clock()
                await routes.wake_up(level)
                sleeps.append(slept - began)
                wakes.append(clock() - slept)
            found.append(
                MeasuredSleep(
                    level=level,
                    sleep_seconds=round(fmean(sleeps), 3),
                    wake_seconds=round(fmean(wakes), 3),
                )
            )
    return tuple(found)
