"""Rollouts on vLLM's CPU engine: the same step in each way, in pairs, every run kept in a file."""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.evidence.tables import Table
from benchmarks.handling import SYSTEMS
from benchmarks.handling.ledger import new_ledger, read_ledger
from benchmarks.handling.systems import BLOCK_SIZE, CONTEXT_TOKENS, Settings, engine
from benchmarks.kept import KeptRuns
from benchmarks.machine import Load, number_type
from benchmarks.pairs import ratio
from benchmarks.rollouts.drive import BASELINE, WAYS, Steps
from benchmarks.rollouts.groups import SMALL, Sample, needed_tokens

COLUMNS = (
    "samples of a prompt",
    "way",
    "samples/s",
    f"to `{BASELINE}`, by pair",
    "computed again [%]",
    "half ended after [s]",
    "all after [s]",
    "others",
)


@dataclass(frozen=True)
class Cell:
    """One run: a step of `prompts` groups, in one way."""

    way: str
    prompts: int
    samples: int
    seed: int

    def drawn(self) -> list[Sample]:
        """Return its samples, the same in every way."""
        return SMALL.draw(self.prompts, self.samples, self.seed)


def cells(args: argparse.Namespace) -> list[Cell]:
    """Return all runs; every second round goes through the ways backwards.

    Groups of more samples are of fewer prompts, so that a step has as many samples.
    """
    return [
        Cell(way, args.step // samples, samples, args.seed + index)
        for index in range(args.rounds)
        for samples in args.samples
        for way in (args.ways if index % 2 == 0 else args.ways[::-1])
    ]


def blocks_of(cell: Cell, pool: float) -> int:
    """Return the KV cache's blocks: a part of what all samples hold at their ends."""
    held = sum(-(-sample.context_tokens // BLOCK_SIZE) for sample in cell.drawn())
    return max(round(pool * held), CONTEXT_TOKENS // BLOCK_SIZE)


async def run(cell: Cell, settings: Settings) -> dict[str, Any]:
    """Run a step in an engine of its own; return what was seen."""
    way, samples = WAYS[cell.way], cell.drawn()
    with tempfile.TemporaryDirectory() as name:
        ledger = new_ledger(Path(name) / "ledger")
        async with engine(way.system, settings, ledger) as llm:
            await Steps(llm, way).step(SMALL.draw(2, 2, -1))  # what is slow the first time
            warm = read_ledger(ledger)
            steps = Steps(llm, way)
            await steps.step(samples)
            seconds = steps.now()
            counts = read_ledger(ledger)
    ends = sorted(record.ended for record in steps.records)
    return {
        **asdict(cell),
        "seconds": seconds,
        "half": statistics.median(ends),
        "needed": needed_tokens(samples),
        "computed": counts["scheduled_tokens"] - warm["scheduled_tokens"],
        "preemptions": counts["preemptions"] - warm["preemptions"],
        "tool_seconds": sum(record.tool_seconds for record in steps.records),
    }


def settings_of(args: argparse.Namespace, cell: Cell) -> Settings:
    """Return the engine's settings, which all ways share."""
    return Settings(blocks=blocks_of(cell, args.pool), model=args.model, sequences=args.step)


def kept_runs(args: argparse.Namespace) -> KeptRuns:
    """Return where runs of these settings are kept."""
    shared = {name: getattr(args, name) for name in ("model", "pool", "step")}
    ours = {name: SYSTEMS[way.system] for name, way in WAYS.items()}
    shape = {**shared, "dtype": number_type(), "shape": asdict(SMALL), "ways": ours}
    return KeptRuns(args.runs, shape)


def measure(args: argparse.Namespace, console: Console) -> bool:
    """Make the runs that are not kept; return False if Ctrl-C ended them before the last."""
    kept = kept_runs(args)
    wanted = [cell for cell in cells(args) if kept.find(asdict(cell)) is None]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=len(wanted))
        try:
            for cell in wanted:
                title = f"{cell.prompts} x {cell.samples}, {cell.way}, seed {cell.seed}"
                progress.update(task, description=title)
                load = Load()
                with load:
                    found = asyncio.run(run(cell, settings_of(args, cell)))
                kept.keep(asdict(cell), {**found, "others": load.others})
                progress.advance(task)
        except KeyboardInterrupt:
            console.print("interrupted: what was measured is kept, and the same command goes on")
            return False
    return True


def table(args: argparse.Namespace) -> Table:
    """Return a row for each way and size of group; means over the rounds."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    kept = kept_runs(args)
    for cell in cells(args):
        one = kept.find(asdict(cell))
        if one is not None:
            found.setdefault((cell.samples, cell.way), []).append(one)
    return Table.of(COLUMNS, _rows(found))


def _rows(found: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]) -> Iterator[Sequence[str]]:
    for (samples, way), runs in sorted(found.items(), key=lambda each: each[0][0]):
        rates = {one["seed"]: _rate(one) for one in runs}
        base = {one["seed"]: _rate(one) for one in found.get((samples, BASELINE), ())}
        both = sorted(rates.keys() & base.keys())
        beside = ratio([rates[s] for s in both], [base[s] for s in both]) if both else "–"
        again = statistics.fmean(1 - one["needed"] / one["computed"] for one in runs)
        yield (
            str(samples),
            WAYS[way].about,
            f"{statistics.fmean(rates.values()):.2f}",
            "1" if way == BASELINE else str(beside),
            f"{100 * again:.1f}",
            f"{statistics.fmean(one['half'] for one in runs):.1f}",
            f"{statistics.fmean(one['seconds'] for one in runs):.1f}",
            f"{statistics.fmean(one['others'] for one in runs):.0%}",
        )


def _rate(one: Mapping[str, Any]) -> float:
    return float(one["prompts"] * one["samples"] / one["seconds"])
