"""What is known beforehand of the pauses for a tool, by those who made the tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

PERSON = "person:"
"""Begins the name under which waits for people are learned."""

LEAST_SECONDS = 1e-9
MOST_SECONDS = 1e9
"""A nanosecond and thirty years: sums and quotients of numbers beyond these over- or underflow."""


@dataclass(frozen=True, slots=True)
class PauseHint:
    """How long calls of one tool are expected to last, before anybody has seen one.

    `seconds` is the expected mean. No pause lasts longer than `deadline_seconds` (None: nobody
    knows). `person`: it lasts until a person has answered, which says nothing about how long the
    tool of that name takes by itself. Numbers beyond `LEAST_SECONDS` and `MOST_SECONDS` are taken
    for these. Raises `ValueError` for what is no positive number.
    """

    seconds: float
    deadline_seconds: float | None = None
    person: bool = False

    def __post_init__(self) -> None:
        for name in ("seconds", "deadline_seconds"):
            seconds = getattr(self, name)
            if seconds is None:
                continue
            if not 0 < seconds < inf:
                raise ValueError(f"a pause's seconds are positive numbers: {self}")
            object.__setattr__(self, name, min(max(seconds, LEAST_SECONDS), MOST_SECONDS))

    def key(self, tool: str) -> str:
        """Return the name under which pauses for the tool are learned."""
        return PERSON + tool if self.person else tool

    def to_wire(self) -> list[Any]:
        """Return the hint as msgpack-able data."""
        return [self.seconds, self.deadline_seconds, self.person]

    @classmethod
    def from_wire(cls, data: Any) -> "PauseHint":
        """Read a hint; raises `ValueError` if it is anything else."""
        try:
            seconds, deadline, person = data
            return cls(float(seconds), None if deadline is None else float(deadline), bool(person))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a hint about pauses: {data!r}") from error


def hints_from_wire(data: Any) -> dict[str, PauseHint]:
    """Read hints by the tools' names; raises `ValueError`."""
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise ValueError("watch.pauses must be an object with a hint per tool")
    return {name: PauseHint.from_wire(hint) for name, hint in data.items()}


def slowest(names: set[str], pauses: Mapping[str, PauseHint]) -> str | None:
    """Return which of the tools that were called together keeps its caller waiting longest.

    Only waits for people count: next to them all others are short. None: nobody waits for any.
    """
    found = [name for name in sorted(names) if name in pauses and pauses[name].person]
    return max(found, key=lambda name: pauses[name].seconds, default=None)
