"""Waiting for an engine that may be dead at this moment."""

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed


async def until_alive(engine: Engine) -> None:
    """Return once the engine takes requests; raise `EngineFailed` if it never will again."""
    try:
        await engine.check_health()
    except EngineFailed as error:
        await engine.revived(error)
