"""Measure a model's engine on a host: loading, stopping, steps and memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from statistics import fmean

from caesura.intercept.kv.costs import CostModel
from caesura.planning.application.application import Model
from caesura.planning.costs.devices import Kind
from caesura.planning.costs.engine import MOST_RUNNING
from caesura.planning.costs.kv_size import kv_arguments
from caesura.planning.costs.measured import MeasuredEngine, MeasuredSleep, model_name
from caesura.planning.costs.measuring.asking import Asker
from caesura.planning.costs.measuring.loads import REPEATS, Load, Taken, loads, steps_of
from caesura.planning.costs.shapes import longest_of, read_shape
from caesura.planning.run.backends.metrics import facts_of
from caesura.planning.run.host import Endpoint, EngineHost, HostError, Replica
from caesura.scheduler.calibration import fit

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


async def measure_engine(
    host: EngineHost,
    model: Model,
    degree: int,
    kind: Kind,
    watch: Watch,
    temperature: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleeps: MeasureSleeps | None = None,
) -> MeasuredEngine:
    """Return the measurement of a model's engine on the first devices of a host.

    Its requests have a `temperature`, which should be that of the application's.
    The engine is loaded twice: its second loading counts, when files are in memory as in a run
    that changes models. Two are loaded at once then where the host has room for them, since engines
    of a stage load together and slow each other down. With `sleeps` it is also put to sleep and
    woken up. Raises `HostError` for an engine that does
    not start, answer, or say how large its KV cache is.
    """
    replica = Replica(model, 0, tuple(range(degree)))
    watch(0.0, "loading")
    endpoint, _ = await _loaded(host, replica, clock)
    try:
        facts = await facts_of(endpoint)
        if facts is None or not facts.kv_tokens or not facts.kv_bytes:
            raise HostError(f"{replica.name} does not say how large its KV cache is in its metrics")
        watch(LOADED, "timing steps")
        asker = Asker(endpoint, Random(0), temperature, clock)
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
    wanted = loads(kv_tokens, longest, MOST_RUNNING)
    if not wanted:
        raise HostError(f"{model.name} has a KV cache of {kv_tokens} tokens: too few to measure")
    times: dict[Load, list[Taken]] = defaultdict(list)
    async with asker:
        pace = 0.0
        for number in range(REPEATS):
            for place, load in enumerate(wanted):
                part = (number + place / len(wanted)) / REPEATS
                watch(LOADED + (TIMED - LOADED) * part, "timing steps")
                if (load not in times) if number else (load.tokens * pace > MAX_LOAD_SECONDS):
                    continue
                taken = await asker.take(load)
                pace = taken.seconds / load.tokens
                times[load].append(taken)
    return times
