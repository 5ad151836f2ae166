"""How a run treats its engines."""

from dataclasses import dataclass

MAX_IN_FLIGHT = 256
"""The most requests that one replica is sent at a time."""
DRAIN_SECONDS = 5.0
"""How long an evicted engine may work on its requests. Those left begin again elsewhere."""
WATCH_SECONDS = 1.0
"""How often the engines are asked whether they still run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; see the constants of their names."""

    max_in_flight: int = MAX_IN_FLIGHT
    drain_seconds: float = DRAIN_SECONDS
    watch_seconds: float = WATCH_SECONDS
