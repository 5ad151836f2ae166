"""A series: all systems at all loads, round by round, in changing order, filled in pieces.

Every run is kept in a file, and one that is there already is not made again. So a series can be
interrupted, given a limit of time, or extended by systems, loads and rounds.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.evidence.tables import tell
from benchmarks.handling import STOCK
from benchmarks.handling.mix import Mix
from benchmarks.handling.model import SIZES
from benchmarks.handling.replay import Replay
from benchmarks.handling.run import IDLE, Plan, run
from benchmarks.handling.speed import measure_speed, saturation
from benchmarks.handling.study.knee import FACTOR, idle_p99, knee
from benchmarks.handling.study.report import print_report
from benchmarks.handling.study.tables import tables
from benchmarks.handling.systems import BLOCK_SIZE, CONTEXT_TOKENS, Settings
from benchmarks.handling.workload import Session, Speed, counted, peak_context, poisson
from benchmarks.kept import KeptRuns
from benchmarks.machine import Load, beside, number_type
from caesura.scheduler.errors import EngineFailed

TYPICAL = Speed(prefill_seconds=1 / 2500, decode_seconds=0.001, step_seconds=0.02)
"""For the size of the pool, which must not depend on how busy the machine happens to be."""

IDLE_SESSIONS = 24
"""Sessions of an idle run: four of each tool."""
START_SECONDS = 12.0
"""A guess of what an engine's start takes, for the first estimate of a run's time."""

OF_A_SERIES = (
    "workload",
    "window",
    "warm_up",
    "tail",
    "longest",
    "token_scale",
    "pause_scale",
    "model",
    "batched_tokens",
    "host_gib",
    "calibration",
    "no_swap",
    "link",
    "beside",
)
"""Arguments that all runs of a table share, beside the rate and the blocks."""


def sessions_of(args: argparse.Namespace, rate: float, seed: int) -> list[Session]:
    """Draw the sessions of a run."""
    kind = Mix if args.workload == "mix" else Replay
    draw = kind(args.token_scale, args.pause_scale, CONTEXT_TOKENS).draw
    return poisson(draw, rate, args.window, seed)


def plan_of(args: argparse.Namespace, rate: float, system: str, load: float, index: int) -> Plan:
    """Return the run of a system at a load in round `index`."""
    seed = args.seed + index
    sessions = sessions_of(args, load * rate, seed)
    chosen = counted(sessions, args.warm_up, args.window + args.tail)
    return Plan(system, load, index, sessions, chosen, args.longest, seed)


def idle_plan(args: argparse.Namespace, rate: float, index: int) -> Plan:
    """Return the run that serves the first sessions of a round one by one, by stock vLLM."""
    seed = args.seed + index
    sessions = sessions_of(args, rate, seed)[:IDLE_SESSIONS]
    keys = frozenset(session.key for session in sessions)
    return Plan(STOCK, 0.0, index, sessions, keys, args.longest, seed, alone=True)


def plans(args: argparse.Namespace, rate: float) -> list[Plan]:
    """List the runs; every second round goes through the systems backwards."""
    return [
        plan_of(args, rate, system, load, index)
        for index in range(args.rounds)
        for load in args.loads
        for system in (args.systems if index % 2 == 0 else args.systems[::-1])
    ]


def pool_blocks(args: argparse.Namespace, rate: float) -> int:
    """Size the KV cache to a part of what all sessions hold at the highest load."""
    sessions = sessions_of(args, max(args.loads) * rate, args.seed)
    size = SIZES[args.model]
    state_tokens = size.state_bytes // size.kv_bytes_per_token(number_type())
    wanted = args.pool * peak_context(sessions, TYPICAL, state_tokens) / BLOCK_SIZE
    # vLLM starts only if one whole context fits; of states there are some more for a moment.
    return max(round(wanted), (CONTEXT_TOKENS + 4 * state_tokens) // BLOCK_SIZE)


@dataclass
class Budget:
    """The time that a series may take, and what its runs have taken; `clock` returns seconds."""

    seconds: float
    guess: float
    began: float = field(default_factory=time.monotonic)
    taken: list[float] = field(default_factory=list)

    @property
    def per_run(self) -> float:
        """Return the expected seconds of the next run."""
        return statistics.fmean(self.taken) if self.taken else self.guess

    def allows(self, now: float) -> bool:
        """Return whether another run is expected to end in time."""
        return now - self.began + self.per_run <= self.seconds


class Series:
    """Makes runs that are not kept yet, until the time is used up."""

    def __init__(
        self, args: argparse.Namespace, settings: Settings, rate: float, console: Console
    ) -> None:
        """Create it for one engine's settings and the sessions per second of load 1."""
        self._args, self._settings, self._rate = args, settings, rate
        self._console = console
        self.kept = KeptRuns(args.runs, shared_settings(args, rate, settings.blocks))
        guess = args.window + args.tail + START_SECONDS
        self._budget = Budget(args.minutes * 60, guess)

    async def fill(self) -> bool:
        """Make the runs of the table, then those of the search for the knees; return if all are."""
        args = self._args
        whole = await self._make(plans(args, self._rate), "table")
        if args.knee:
            idle = [idle_plan(args, self._rate, index) for index in range(args.rounds)]
            whole = await self._make(idle, "idle engine") and whole
            whole = await self._search() and whole
        return whole

    async def _search(self) -> bool:
        """Halve the gap between loads that hold and loads that fail, for all systems in turn.

        Return whether there was time for all of it.
        """
        args = self._args
        while True:
            planned = []
            for system, load in self._next_loads():
                planned += [
                    plan_of(args, self._rate, system, load, index) for index in range(args.rounds)
                ]
            if not planned:
                return True
            if not await self._make(planned, "search"):
                return False

    def _next_loads(self) -> Iterator[tuple[str, float]]:
        runs = list(self.kept.all())
        idle = [each for each in runs if each["system"] == IDLE]
        if not idle:
            return
        bound = FACTOR * idle_p99(idle)
        for system in self._args.systems:
            load = knee(runs, system, bound).next_load(self._args.resolution)
            if load is not None:
                yield system, load

    async def _make(self, planned: list[Plan], what: str) -> bool:
        """Make the runs that are not kept; return whether there was time for all of them."""
        again = self._args.again
        todo = [plan for plan in planned if again or self.kept.find(plan.what) is None]
        if len(todo) < len(planned):
            self._console.print(f"{what}: {len(planned) - len(todo)} of {len(planned)} runs kept")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=self._console) as progress:
            whole = progress.add_task(what, total=len(todo), left="")
            for done, plan in enumerate(todo):
                if not self._budget.allows(time.monotonic()):
                    self._console.print(f"{what}: no time for {len(todo) - done} more runs")
                    return False
                minutes = (len(todo) - done) * self._budget.per_run / 60
                progress.update(whole, left=f"about {minutes:.0f} min left")
                await self._make_one(plan, progress)
                progress.advance(whole)
        return True

    async def _make_one(self, plan: Plan, progress: Progress) -> None:
        title = f"{plan.what['system']}, load {plan.load:g}, round {plan.round + 1}"
        task = progress.add_task(title, total=len(plan.counted), left="")
        began = time.monotonic()
        load = Load()
        with load, beside(self._args.beside), tempfile.TemporaryDirectory() as name:
            found = await run(
                plan,
                self._settings,
                Path(name),
                lambda done: progress.update(task, completed=done),
            )
        self.kept.keep(plan.what, {**found, "others": load.others})
        self._budget.taken.append(time.monotonic() - began)
        progress.remove_task(task)


def shared_settings(args: argparse.Namespace, rate: float, blocks: int) -> dict[str, Any]:
    """Return what all runs of one table share."""
    return {
        **{name: getattr(args, name) for name in OF_A_SERIES},
        "rate": rate,
        "blocks": blocks,
        "dtype": number_type(),
    }


async def _rate_of(args: argparse.Namespace, settings: Settings, console: Console) -> float:
    """Return the sessions per second of load 1: as given, or measured."""
    if args.rate is not None:
        return float(args.rate)
    with console.status("measuring the model"), tempfile.TemporaryDirectory() as name:
        speed, measured = await measure_speed(settings, Path(name))
    console.print(measured)
    return saturation(sessions_of(args, 10, args.seed), speed)


async def measure(args: argparse.Namespace, console: Console) -> bool:
    """Fill the series as far as the time allows, and print how to go on; return if it is whole."""
    settings = Settings(
        blocks=args.blocks or 0,
        model=args.model,
        batched_tokens=args.batched_tokens,
        host_gib=args.host_gib,
        swap=not args.no_swap,
        calibration=args.calibration,
        link_gb_per_second=args.link,
    )
    rate = await _rate_of(args, settings, console)
    blocks = args.blocks or pool_blocks(args, rate)
    # Later invocations find these runs by the numbers, so these are what they must be given.
    args.rate, args.blocks = round(rate, 3), blocks
    console.print(f"load 1: --rate {args.rate:g} sessions/s; KV: --blocks {blocks}")
    settings = Settings(**{**vars(settings), "blocks": blocks})
    return await Series(args, settings, args.rate, console).fill()


def main(args: argparse.Namespace) -> None:
    """Measure or show, print the tables, and write them as data once the series is whole."""
    console = Console(width=190)
    whole = bool(args.show)
    if not args.show:
        try:
            whole = asyncio.run(measure(args, console))
        except KeyboardInterrupt:
            console.print("interrupted: what was measured is kept")
        except EngineFailed as error:
            console.print(f"[red]the series stops, and what was measured is kept:[/red] {error}")
    runs = list(KeptRuns(args.runs, shared_settings(args, args.rate, args.blocks)).all())
    if not runs:
        console.print(f"no runs of these settings are kept in {args.runs}")
        return
    print_report(console, runs, args.window)
    if whole:
        tell(args.tables, tables(runs, args.window, args.rate))
