"""The memory of devices that several models share."""

from collections.abc import Sequence
from dataclasses import replace

from caesura.planning.costs.engine import EngineCosts
from caesura.planning.plan import Placement


def split(engines: Sequence[EngineCosts], placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Return the placements with a `kv_bytes` each, on devices that they share.

    Each gets the KV cache of one longest request, and the same part of what is left in bytes.
    Empty if the devices do not hold that. The name of the shared devices lists the models.
    """
    least = [_least(engine) for engine in engines]
    weights = sum(engine.weight_bytes for engine in engines)
    left = min(engine.room for engine in engines) - weights - sum(least)
    if left < 0:
        return ()
    name = "+".join(sorted(one.model for one in placements))
    more = int(left // len(placements))
    return tuple(
        replace(one, kv_bytes=bytes_ + more, shares=name)
        for one, bytes_ in zip(placements, least, strict=True)
    )


def _least(engine: EngineCosts) -> int:
    """Return the bytes of one longest request, in whole blocks."""
    blocks = -(-engine.longest // engine.block_tokens)
    return blocks * engine.block_tokens * engine.kv_bytes
