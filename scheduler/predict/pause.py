"""How long each tool keeps its callers waiting: learned online, guessed from its name before that.

A guess from the name is worth two observations, a guess for an unknown tool one: what a tool does
is seen within its first few calls, and errors of the guess matter only until then.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.pause_hints import PERSON

MAX_TOOLS = 1000
UNKNOWN_SECONDS = 5.0
KIND_WEIGHT = 2.0


def _kind(seconds: float, stems: str, words: str) -> tuple[re.Pattern[str], Durations]:
    pattern = rf"{stems}|(?<![a-z])(?:{words})(?![a-z])"
    return re.compile(pattern), Durations(seconds, KIND_WEIGHT)


A_PERSON = Durations(60.0, KIND_WEIGHT)

# The first that matches the name counts. Stems match anywhere, short words only as a whole.
KINDS = (
    _kind(60.0, "human|approv|confirm", "ask|user_input"),
    _kind(1.0, "search|retriev|wiki|http|fetch|brows|lookup", "web|url|rag|curl|api"),
    _kind(20.0, "image|diffusion|picture|draw|paint", "img|photo"),
    _kind(15.0, "speech|speak|voice|audio", "tts|say"),
    _kind(0.05, "database", "sql|db|query|sqlite|postgres"),
    _kind(5.0, "python|shell|terminal|execut|compil|script", "code|bash|sh|test|tests|run|exec"),
    _kind(0.001, "calcul|arithm|convert|clock|datetime", "math|calc|sum|time|date|now|today"),
)


@lru_cache(maxsize=4096)
def guess(tool: str) -> Durations | None:
    """Return what a tool's name says about its pauses, if anything."""
    if tool.startswith(PERSON):
        return A_PERSON
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool).lower()
    return next((durations for pattern, durations in KINDS if pattern.search(name)), None)


class PausePredictor:
    """What is known of each tool's pauses. No clock: it is told how long they were.

    It remembers the `MAX_TOOLS` tools that returned last. A call of no known tool, and several
    tools called at once, are None.
    """

    def __init__(self) -> None:
        self._tools: OrderedDict[str, Durations] = OrderedDict()
        self._expected: OrderedDict[str, Durations] = OrderedDict()
        self._unknown: Durations | None = None

    def expect(self, tool: str, seconds: float) -> None:
        """Believe this mean of the tool's pauses until some were seen; it counts as two."""
        known = self._expected.get(tool)
        if known is None or known.prior_seconds != seconds:
            self._expected[tool] = Durations(seconds, KIND_WEIGHT)
        self._expected.move_to_end(tool)
        if len(self._expected) > MAX_TOOLS:
            self._expected.popitem(last=False)

    def durations_for(self, tool: str | None) -> Durations:
        """Return what is known of the tool's pauses; the same object until more is."""
        name = tool or ""
        known = self._tools.get(name) or self._expected.get(name)
        return known or guess(name) or self._of_any_tool()

    def observe(self, tool: str | None, seconds: float) -> None:
        """Learn from a pause that has ended; raises `ValueError` if `seconds` is not finite."""
        name = tool or ""
        self._tools[name] = self.durations_for(tool).observe(seconds)
        self._tools.move_to_end(name)
        if len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
        self._unknown = None

    def _of_any_tool(self) -> Durations:
        """Return the mean of all observed tools, each counted once, as the guess for another."""
        if self._unknown is None:
            means = [durations.mean for durations in self._tools.values()]
            mean = (UNKNOWN_SECONDS + sum(means)) / (1 + len(means))
            self._unknown = Durations(mean)
        return self._unknown

    def to_wire(self) -> dict[str, Any]:
        """Return plain data for a file; the tools are in the order in which they returned last."""
        return {"tools": {name: durations.to_wire() for name, durations in self._tools.items()}}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "PausePredictor":
        """Read what `to_wire` wrote; raises `ValueError` if it is anything else."""
        tools = wire.get("tools") if isinstance(wire, Mapping) else None
        if not isinstance(tools, Mapping) or not all(isinstance(name, str) for name in tools):
            raise ValueError("not a record of tools' pauses: it has no mapping `tools`")
        predictor = cls()
        for name, record in list(tools.items())[-MAX_TOOLS:]:
            try:
                predictor._tools[name] = Durations.from_wire(record)
            except ValueError as error:
                raise ValueError(f"pauses of tool {name!r}: {error}") from error
        return predictor
