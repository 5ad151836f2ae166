"""The bound of `caesura serve` on the time for which requests wait for the engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.launch import listen_to, sizes_of
from caesura.runtime.server.load.queue_bound import Machine, QueueBound


@asynccontextmanager
async def queue_bound(engine: Engine, most_seconds: float) -> AsyncIterator[QueueBound]:
    """Yield the bound, which follows the engine's records while the context lasts.

    Raises `UsageError` for a bound on an engine without records, and `EngineFailed`.
    """
    sizes = await sizes_of(engine)
    if most_seconds and not sizes:
        raise UsageError(
            f"--max-queue-seconds is {most_seconds:g}, but this engine sends no records from which"
            " waits are predicted: leave out --disable-log-stats, or the bound"
        )
    machines = [
        Machine(each["block_size"], each["blocks"] * each["block_size"], each["most_running"])
        for each in sizes
    ]
    bound = QueueBound(most_seconds, machines)
    stop = listen_to(engine, bound.take)
    try:
        yield bound
    finally:
        stop()
