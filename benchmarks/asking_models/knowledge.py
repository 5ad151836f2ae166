"""What is known of an expert's answer when it is asked for, from nothing to its true time."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from caesura.simulator.engine.clients import Call
from caesura.simulator.machine import Machine, StepShape
from caesura.tools.model import AnswerTimes

Seconds = Mapping[tuple[str, int], float]
"""The seconds of calls, by session and by number."""


@dataclass
class Knowledge:
    """Forecasts nothing, and keeps how long each question took and what was forecast."""

    taken: dict[tuple[str, int], float] = field(default_factory=dict)
    foretold: dict[tuple[str, int], float] = field(default_factory=dict)

    def forecast(self, call: Call) -> float | None:
        """Return the forecast of a question; None for calls of other tools."""
        if not call.asked:
            return None
        seconds = self.seconds(call)
        if seconds is not None:
            self.foretold[call.session.key, call.index] = seconds
        return seconds

    def returned(self, call: Call, seconds: float) -> None:
        """Keep how long a question took."""
        if call.asked:
            self.taken[call.session.key, call.index] = seconds
            self.learn(call, seconds)

    def seconds(self, call: Call) -> float | None:
        """Return the expected seconds of a question; None: only the mean of its tool is known."""
        return None

    def learn(self, call: Call, seconds: float) -> None:
        """Learn how long a question took."""

    def error(self) -> float | None:
        """Return the mean absolute error of the forecasts as a share of the mean pause."""
        pairs = [
            (self.foretold[key], seconds)
            for key, seconds in self.taken.items()
            if key in self.foretold
        ]
        total = sum(seconds for _, seconds in pairs)
        return sum(abs(said - seconds) for said, seconds in pairs) / total if total else None


@dataclass
class Planned(Knowledge):
    """Knows the mean of all answers from a plan, which simulated other questions."""

    mean_seconds: float = 0.0

    def seconds(self, call: Call) -> float | None:
        """Return the plan's mean."""
        return self.mean_seconds


@dataclass
class Load(Planned):
    """Knows the load of the expert's engine, as the tool `ask_model` does."""

    times: AnswerTimes = field(default_factory=AnswerTimes)
    loads: dict[tuple[str, int], int] = field(default_factory=dict)

    def seconds(self, call: Call) -> float | None:
        """Return the mean of answers at a similar load."""
        self.loads[call.session.key, call.index] = call.load
        return self.times.forecast(call.load, self.mean_seconds)

    def learn(self, call: Call, seconds: float) -> None:
        """Learn how long an answer took at its load."""
        self.times.observe(self.loads[call.session.key, call.index], seconds)


@dataclass
class Lengths(Knowledge):
    """Knows how long the answer will be, times a random factor, and the load.

    The logarithm of the factor is normal, with `log_error` as its standard deviation.
    """

    machine: Machine | None = None
    context_tokens: int = 1500
    """The assumed context of the requests that decode beside it."""
    log_error: float = 0.0
    seed: int = 0

    def seconds(self, call: Call) -> float | None:
        """Return the answer's tokens times the step of a batch of this load."""
        assert self.machine is not None
        beside = call.load + 1
        context = beside * self.context_tokens
        step = StepShape(beside, beside, beside, context, self.context_tokens, 0.0)
        tokens = max(sum(part.decode_tokens for part in one.segments) for one in call.asked)
        drawn = random.Random(f"{self.seed} {call.session.key} {call.index}").gauss(0, 1)
        factor = math.exp(self.log_error * drawn)
        return factor * tokens * self.machine.latency.seconds(step)


@dataclass
class Oracle(Knowledge):
    """Knows the true times of an earlier run of the same questions."""

    earlier: Seconds = field(default_factory=dict)

    def seconds(self, call: Call) -> float | None:
        """Return how long the question took in the earlier run."""
        return self.earlier.get((call.session.key, call.index))
