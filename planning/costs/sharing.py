"""The memory of devices that several models share."""

from collections.abc import Sequence
from dataclasses import replace

from caesura.planning.costs.engine import EngineCosts
from caesura.planning.plan import Placement


def split(engines: Sequence[EngineCosts], placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Return the placements with a `kv_bytes` each, on devices that they share.

    Each gets the KV cache of one longest request, and the same part of what is left in bytes. One
    whose size the model's arguments set gets just that. Empty if the devices do not hold this, or
    if such a size is too small. The name of the shared devices lists the models.
    """
    least = [engine.kv_given if engine.kv_fixed else _least(engine) for engine in engines]
    weights = sum(engine.weight_bytes for engine in engines)
    left = min(engine.room for engine in engines) - weights - sum(least)
    small = any(kv < _least(engine) for kv, engine in zip(least, engines, strict=True))
    if left < 0 or small:
        return ()
    name = "+".join(sorted(one.model for one in placements))
    more = int(left // max(1, sum(not engine.kv_fixed for engine in engines)))
    return tuple(
        replace(one, kv_bytes=bytes_ + (0 if engine.kv_fixed else more), shares=name)
        for one, bytes_, engine in zip(placements, least, engines, strict=True)
    )


def _least(engine: EngineCosts) -> int:
    """Return the bytes of one longest request, in whole blocks."""
    blocks = -(-engine.longest // engine.block_tokens)
    return blocks * engine.block_tokens * engine.kv_bytes
