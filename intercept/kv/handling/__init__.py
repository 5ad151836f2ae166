"""The handlings by name; a handling decides about a request's KV cache while its tool runs."""

from collections.abc import Callable

from caesura.intercept.kv.handling.caesura import Caesura
from caesura.intercept.kv.handling.fixed import Discard, Preserve, Swap
from caesura.intercept.kv.handling.infercept import InferCept
from caesura.intercept.kv.handling.lamps import Lamps
from caesura.intercept.kv.handling.ttl import TimeToLive
from caesura.intercept.kv.views import Handling

DEFAULT_HANDLING = "caesura"

HANDLINGS: dict[str, Callable[[], Handling]] = {
    "caesura": Caesura,
    "infercept": InferCept,
    "lamps": Lamps,
    "ttl": TimeToLive,
    "preserve": Preserve,
    "discard": Discard,
    "swap": Swap,
}


def make_handling(name: str) -> Handling:
    """Return the handling of this name; raises `ValueError` that lists the names."""
    make = HANDLINGS.get(name)
    if make is None:
        raise ValueError(f"unknown handling {name!r}; choose from: {', '.join(HANDLINGS)}")
    return make()
