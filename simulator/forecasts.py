"""Forecasts of single calls in a simulation: what is known when a session pauses."""

from dataclasses import dataclass
from typing import Protocol

from caesura.simulator.session import Session


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a session at its begin.

    It is call number `index` of `session`, from 0 on. `asked` are the sessions that it starts,
    possibly on other engines, and `load` is the most requests that one of these engines runs or
    queues. Without them the call is that of a tool.
    """

    session: Session
    index: int
    asked: tuple[Session, ...]
    load: int
    at: float


class Forecaster(Protocol):
    """Forecasts calls, and learns how long they lasted."""

    def forecast(self, call: Call) -> float | None:
        """Return the expected seconds of a call that begins now; None if they are unknown."""
        ...

    def returned(self, call: Call, seconds: float) -> None:
        """Learn that a call lasted `seconds`."""
        ...
