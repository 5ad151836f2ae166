"""Predict the pauses of each tool: learned online, and guessed from the tool's name before that.

A guess from the name counts as two observations, and a guess for an unknown tool as one. The first
few calls of a tool show its durations, so errors of the guess matter only until then.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from caesura.intercept.kv.pause_durations import Durations, ForecastTrust, PauseForecast
from caesura.intercept.pause_hints import PERSON

MAX_TOOLS = 1000
UNKNOWN_SECONDS = 5.0
KIND_WEIGHT = 2.0
NO_TRUST_YET = ForecastTrust()


def _kind(seconds: float, stems: str, words: str) -> tuple[re.Pattern[str], Durations]:
    pattern = rf"{stems}|(?<![a-z])(?:{words})(?![a-z])"
    return re.compile(pattern), Durations(seconds, KIND_WEIGHT)


A_PERSON = Durations(60.0, KIND_WEIGHT)

# The first pattern that matches the name counts. Stems match anywhere, short words only as a whole.
KINDS = (
    _kind(5.0, "language_model|expert", "ask_model|llm"),
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
    """Return the pauses that a tool's name suggests, or None."""
    if tool.startswith(PERSON):
        return A_PERSON
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool).lower()
    return next((durations for pattern, durations in KINDS if pattern.search(name)), None)


class PausePredictor:
    """Learns the pauses of each tool; it has no clock, and callers report the durations.

    It keeps the last `MAX_TOOLS` tools. The tool is None for a call of an unknown tool, and for
    several calls at once.
    """

    def __init__(self) -> None:
        self._trust: OrderedDict[str, ForecastTrust] = OrderedDict()
        self._tools: OrderedDict[str, Durations] = OrderedDict()
        self._expected: OrderedDict[str, Durations] = OrderedDict()
        self._unknown: Durations | None = None

    def expect(self, tool: str, seconds: float) -> None:
        """Set the assumed mean of a tool's pauses; it counts as `KIND_WEIGHT` observations."""
        known = self._expected.get(tool)
        if known is None or known.prior_seconds != seconds:
            self._expected[tool] = Durations(seconds, KIND_WEIGHT)
        self._expected.move_to_end(tool)
        if len(self._expected) > MAX_TOOLS:
            self._expected.popitem(last=False)

    def durations_for(self, tool: str | None) -> Durations:
        """Return the durations of a tool's pauses; the same object until the next observation."""
        name = tool or ""
        known = self._tools.get(name) or self._expected.get(name)
        return known or guess(name) or self._of_any_tool()

    def observe(self, tool: str | None, seconds: float) -> None:
        """Learn the duration of a pause; raises `ValueError` if `seconds` is not finite."""
        name = tool or ""
        self._tools[name] = self.durations_for(tool).observe(seconds)
        self._tools.move_to_end(name)
        if len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
        self._unknown = None

    def trust_for(self, tool: str | None) -> ForecastTrust:
        """Return how well forecasts of single calls have predicted the pauses of a tool."""
        return self._trust.get(tool or "", NO_TRUST_YET)

    def observe_forecast(self, tool: str | None, forecast: PauseForecast, seconds: float) -> None:
        """Learn that a pause with this forecast lasted `seconds`; call it besides `observe`."""
        name = tool or ""
        self._trust[name] = self.trust_for(tool).observe(forecast, seconds)
        self._trust.move_to_end(name)
        if len(self._trust) > MAX_TOOLS:
            self._trust.popitem(last=False)

    def _of_any_tool(self) -> Durations:
        """Return the guess for an unknown tool: the mean over observed tools, each counted once."""
        if self._unknown is None:
            means = [durations.mean for durations in self._tools.values()]
            mean = (UNKNOWN_SECONDS + sum(means)) / (1 + len(means))
            self._unknown = Durations(mean)
        return self._unknown

    def to_wire(self) -> dict[str, Any]:
        """Return plain data for a file, in the order of the tools' last observations."""
        return {"tools": {name: durations.to_wire() for name, durations in self._tools.items()}}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "PausePredictor":
        """Return the predictor that `to_wire` wrote; raises `ValueError` for any other data."""
        tools = wire.get("tools") if isinstance(wire, Mapping) else None
        if not isinstance(tools, Mapping) or not all(isinstance(name, str) for name in tools):
            raise ValueError(f"a record of pauses must have an object `tools`, got {wire!r:.200}")
        predictor = cls()
        for name, record in list(tools.items())[-MAX_TOOLS:]:
            try:
                predictor._tools[name] = Durations.from_wire(record)
            except ValueError as error:
                raise ValueError(f"pauses of tool {name!r}: {error}") from error
        return predictor
