"""The options of a workload's spec: `name`, or `name:key=value,key=value`."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path

from caesura.simulator.workload.draw import Shape

SWITCHES = {"yes": True, "true": True, "no": False, "false": False}


class SpecError(ValueError):
    """A workload's spec is wrong or cannot be met; the message says why."""


class Options:
    """The values of a spec; `done` refuses those that were never read."""

    def __init__(self, spec: str) -> None:
        """Raise `SpecError` if the spec is not of this form."""
        self.spec = spec
        self.name, _, rest = spec.partition(":")
        self._values: dict[str, str] = {}
        self._asked: set[str] = set()
        for item in filter(None, rest.split(",")):
            key, equals, value = item.partition("=")
            if not equals or not key or not value:
                raise self.error(f"an option must be key=value, got {item!r}")
            if key in self._values:
                raise self.error(f"{key} is given twice: remove one")
            self._values[key] = value

    def error(self, problem: str) -> SpecError:
        """Return an error that names this spec."""
        return SpecError(f"workload {self.spec!r}: {problem}")

    def text(self, key: str, default: str = "") -> str:
        """Return a value unchanged."""
        self._asked.add(key)
        return self._values.get(key, default)

    def path(self, key: str) -> Path | None:
        """Return the path under `key`, or None."""
        text = self.text(key)
        return Path(text) if text else None

    def number(self, key: str, default: float, least: float = 0.0) -> float:
        """Return a number of at least `least`."""
        text = self.text(key)
        try:
            value = float(text) if text else default
        except ValueError:
            value = math.nan
        if not value >= least:
            raise self.error(f"{key} must be a number >= {least:g}, got {text!r}")
        return value

    def positive(self, key: str, default: float) -> float:
        """Return a number above 0."""
        value = self.number(key, default)
        if not 0 < value < math.inf:
            raise self.error(f"{key} must be a positive number, got {value:g}")
        return value

    def whole(self, key: str, default: int, least: int = 0) -> int:
        """Return a whole number of at least `least`."""
        value = self.number(key, default, least)
        if value != int(value):
            raise self.error(f"{key} must be a whole number, got {value:g}")
        return int(value)

    def switch(self, key: str, default: bool = False) -> bool:
        """Return yes or no."""
        text = self.text(key, "yes" if default else "no").lower()
        if text not in SWITCHES:
            raise self.error(f"{key} must be yes or no, got {text!r}")
        return SWITCHES[text]

    def among(self, key: str, known: Collection[str], default: str) -> str:
        """Return one of the known names."""
        text = self.text(key, default)
        if text not in known:
            raise self.error(f"unknown {key} {text!r}; choose from: {', '.join(known)}")
        return text

    def several(
        self, key: str, known: Mapping[str, tuple[str, ...]], default: str
    ) -> tuple[str, ...]:
        """Return the members of the names joined by `+`, in order and without repetition."""
        found: dict[str, None] = {}
        for name in self.text(key, default).split("+"):
            if name not in known:
                raise self.error(f"unknown {key} {name!r}; choose from: {', '.join(known)}")
            found.update(dict.fromkeys(known[name]))
        return tuple(found)

    def shape(self) -> Shape:
        """Return the factors and limits that every workload takes."""
        return Shape(
            tokens=self.positive("tokens", 1.0),
            decode=self.positive("decode", 1.0),
            pause=self.number("pause", 1.0),
            longest=self.number("longest", math.inf),
            context=self.whole("context", 0),
        )

    def done(self) -> None:
        """Raise `SpecError` for an option that was never read."""
        unknown = [key for key in self._values if key not in self._asked]
        if unknown:
            there = ", ".join(sorted(self._asked))
            raise self.error(f"unknown option {unknown[0]!r}; choose from: {there}")
