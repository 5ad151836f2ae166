"""The plan of a study: every policy at every rate, with every seed, on every machine."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.scheduler.errors import UsageError
from caesura.scheduler.policy.slo import Slo
from caesura.simulator.policy import Policy

WARM_UP = 1 / 6
"""The default warm-up, as a share of the arrivals' span; its sessions are not counted."""


class StudyError(UsageError, ValueError):
    """A study cannot be run as asked; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a study: everything that determines its result except the programs' versions.

    `rate` is in sessions per second and `seconds` is the span of the arrivals; a workload with
    clients ignores both. The run is cut off after `window` simulated seconds (None: all sessions
    end).
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

    In a `closed` loop `rates` are numbers of clients; each client sends a session when its last one
    has ended. Sessions that arrive before `warm_up` seconds are not counted (None: `WARM_UP` of
    the arrivals' span). `baseline` names the policy that the others are compared with, or is empty.
    Goodput is measured against the objective `slo`; it determines no run.
    Raises `StudyError` for a study that cannot be run.
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
    slo: Slo | None = None

    def __post_init__(self) -> None:
        for what, values in (
            ("policy", self.policy_names),
            ("rate", self.rates),
            ("seed", self.seeds),
            ("machine", self.machines),
        ):
            _demand_distinct(what, values)
        for rate in self.rates:
            if not (math.isfinite(rate) and rate > 0):
                raise StudyError(f"a rate (or number of clients) must be above 0, got {rate:g}")
            if self.closed and not rate.is_integer():
                raise StudyError(f"--clients must be whole numbers, got {rate:g}")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise StudyError(f"the seconds of arrivals must be above 0, got {self.seconds:g}")
        self._demand_counted()
        if self.baseline and self.baseline not in self.policy_names:
            raise StudyError(
                f"the baseline {self.baseline!r} is not among the policies:"
                f" {', '.join(self.policy_names)}"
            )

    @property
    def policy_names(self) -> tuple[str, ...]:
        """Return the policies' names, in their order."""
        return tuple(policy.name for policy in self.policies)

    def counted(self, last_arrival: float) -> tuple[float, float]:
        """Return (begin, end): a run counts the sessions that arrive in [begin, end).

        Arrivals span `seconds`. In a closed loop they span the time until `last_arrival`, which
        is known only after the run.
        """
        end = math.nextafter(last_arrival, math.inf) if self.closed else self.seconds
        return (end * WARM_UP if self.warm_up is None else self.warm_up), end

    def load(self, rate: float) -> str:
        """Return a rate with its unit."""
        return f"{rate:g} clients" if self.closed else f"{rate:g} sessions/s"

    def cells(self) -> list[Cell]:
        """Return the runs; those of the first seed come first, so that a part is useful too."""
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
        """Raise `StudyError` if no sessions can count; a closed loop's span is not known yet."""
        if self.warm_up is not None and not 0 <= self.warm_up < math.inf:
            raise StudyError(f"a warm-up must be finite seconds >= 0, got {self.warm_up:g}")
        begin, end = self.counted(0.0)
        if not self.closed and begin >= end:
            raise StudyError(f"a warm-up of {begin:g} s leaves nothing of {end:g} s")
        if self.window is not None and not self.window > begin:
            raise StudyError(
                f"a window of {self.window:g} s ends within the warm-up of {begin:g} s:"
                " give a longer window"
            )


def _demand_distinct(what: str, values: Sequence[object]) -> None:
    if not values:
        raise StudyError(f"a study needs at least one {what}")
    twice = [str(value) for value, count in Counter(values).items() if count > 1]
    if twice:
        raise StudyError(f"the {what} {twice[0]} is given twice: remove one")
