"""What a study compares: every policy at every rate, with every seed, on every machine."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.scheduler.errors import UsageError
from caesura.simulator.policy import Policy

WARM_UP = 1 / 6
"""The share of the arrivals' span whose sessions are not counted, unless a study says another."""


class StudyError(UsageError, ValueError):
    """A study that cannot be made as it is asked for; the message says the mend."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a study: all that determines its result, but for the versions of the programs.

    `rate` is in sessions per second, `seconds` the span of the arrivals; a workload with clients
    has no use for either. `window` cuts the run off after so many simulated seconds (None: all
    sessions end).
    """

    workload: str
    data: Path | None
    machine: str
    policy: Policy
    rate: float
    seed: int
    seconds: float
    window: float | None = None

    def __str__(self) -> str:
        return f"{self.policy.name}, {self.rate:g}/s, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Study:
    """A product of policies, rates, seeds and machines.

    In a `closed` loop `rates` are numbers of clients, each of which sends a session when its last
    has ended. Sessions that arrive before `warm_up` seconds are not counted (None: `WARM_UP` of
    the arrivals' span). `baseline` names the policy that the others are compared with; empty: none
    is. Raises `StudyError` for what cannot be run.
    """

    workload: str
    policies: tuple[Policy, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    machines: tuple[str, ...]
    seconds: float
    data: Path | None = None
    window: float | None = None
    warm_up: float | None = None
    baseline: str = ""
    closed: bool = False

    def __post_init__(self) -> None:
        for what, values in (
            ("policy", self.policy_names),
            ("rate", self.rates),
            ("seed", self.seeds),
            ("machine", self.machines),
        ):
            _demand_distinct(what, values)
        if not all(math.isfinite(rate) and rate > 0 for rate in self.rates):
            raise StudyError("a rate is a number of sessions per second above 0")
        if self.closed and not all(rate.is_integer() for rate in self.rates):
            raise StudyError("there is a whole number of clients")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise StudyError("the arrivals span a number of seconds above 0")
        self._demand_counted()
        if self.baseline and self.baseline not in self.policy_names:
            raise StudyError(
                f"the baseline {self.baseline!r} is not among the policies:"
                f" {', '.join(self.policy_names)}"
            )

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The policies' names, in their order."""
        return tuple(policy.name for policy in self.policies)

    def counted(self, last_arrival: float) -> tuple[float, float]:
        """Return the seconds between which arriving sessions count in a run, the end not with it.

        Sessions that arrive by themselves span `seconds`; in a closed loop they come as they may,
        until the run's `last_arrival`.
        """
        end = math.nextafter(last_arrival, math.inf) if self.closed else self.seconds
        return (end * WARM_UP if self.warm_up is None else self.warm_up), end

    def load(self, rate: float) -> str:
        """Return a rate in words."""
        return f"{rate:g} clients" if self.closed else f"{rate:g} sessions/s"

    def cells(self) -> list[Cell]:
        """Return the runs: all with the first seed come first, so that a part is of use too."""
        return [
            Cell(
                self._workload(rate),
                self.data,
                machine,
                policy,
                rate,
                seed,
                self.seconds,
                self.window,
            )
            for seed in self.seeds
            for machine in self.machines
            for rate in self.rates
            for policy in self.policies
        ]

    def _workload(self, rate: float) -> str:
        if not self.closed or "clients=" in self.workload:
            return self.workload
        return f"{self.workload}{',' if ':' in self.workload else ':'}clients={rate:g}"

    def _demand_counted(self) -> None:
        """Something must be left to count; of a closed loop nobody knows before it has run."""
        if self.warm_up is not None and not 0 <= self.warm_up < math.inf:
            raise StudyError("a warm-up is a number of seconds from 0 on")
        begin, end = self.counted(0.0)
        if not self.closed and begin >= end:
            raise StudyError(f"a warm-up of {begin:g} s leaves nothing of {end:g} s")
        if self.window is not None and not self.window > begin:
            raise StudyError(
                f"runs that are cut off after {self.window:g} s end within the warm-up"
                f" of {begin:g} s"
            )


def _demand_distinct(what: str, values: Sequence[object]) -> None:
    if not values:
        raise StudyError(f"a study takes at least one {what}")
    twice = [str(value) for value, count in Counter(values).items() if count > 1]
    if twice:
        raise StudyError(f"the {what} {twice[0]} is there twice")
