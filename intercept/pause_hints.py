"""Hints from a tool's author: how long calls of the tool are expected to last."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

PERSON = "person:"
"""Prefix of the key under which waits for a person are learned."""

MIN_SECONDS = 1e-9
MAX_SECONDS = 1e9
"""A nanosecond and thirty years; beyond these, sums and quotients overflow or underflow."""


@dataclass(frozen=True, slots=True)
class PauseHint:
    """How long calls of one tool are expected to last before the first one was observed.

    `seconds` is the expected mean. `deadline_seconds` is the longest a pause can last (None:
    unknown). `person`: the pause lasts until a person has answered, so its duration says nothing
    about the tool itself. Seconds are clamped to `MIN_SECONDS` and `MAX_SECONDS`.
    Raises `ValueError` for a number that is not positive and finite.
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
                raise ValueError(
                    f"{name} of a pause must be a positive number, got {seconds!r:.100}"
                )
            object.__setattr__(self, name, min(max(seconds, MIN_SECONDS), MAX_SECONDS))

    def key(self, tool: str) -> str:
        """Return the key under which pauses for the tool are learned."""
        return PERSON + tool if self.person else tool

    def to_wire(self) -> list[Any]:
        """Return the hint as msgpack-able data."""
        return [self.seconds, self.deadline_seconds, self.person]

    @classmethod
    def from_wire(cls, data: Any) -> "PauseHint":
        """Return the hint that `to_wire` wrote; raises `ValueError` for any other data."""
        try:
            seconds, deadline, person = data
            return cls(float(seconds), None if deadline is None else float(deadline), bool(person))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"a pause hint must be [seconds, deadline_seconds, person], got {data!r:.100}"
            ) from error


def hints_from_wire(data: Any) -> dict[str, PauseHint]:
    """Return hints by tool name; raises `ValueError` for any other data."""
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"watch.pauses must be an object with a hint per tool, got {data!r:.100}")
    return {name: PauseHint.from_wire(hint) for name, hint in data.items()}


def slowest(names: set[str], pauses: Mapping[str, PauseHint]) -> str | None:
    """Return the tool among `names` whose call is expected to last longest.

    Only tools that wait for a person count, since all others are short in comparison.
    Returns None if no tool of `names` waits for a person.
    """
    found = [name for name in sorted(names) if name in pauses and pauses[name].person]
    return max(found, key=lambda name: pauses[name].seconds, default=None)
