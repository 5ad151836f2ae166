"""All loads, round by round."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.evidence.tables import tell
from benchmarks.kept import KeptRuns
from benchmarks.validate.compare import compare, draw
from benchmarks.validate.kept import from_wire, to_wire
from benchmarks.validate.real import Setup, serve
from benchmarks.validate.report import print_report, tables

DRAWN = ("rate", "seconds", "warm_up", "tail")


async def measure(args: argparse.Namespace, console: Console, runs: list[dict[str, Any]]) -> None:
    """Run the rounds that are not kept; `runs` holds those that there are, whenever it ends."""
    setup = Setup(kv_tokens=args.kv_tokens, handling=args.handling)
    shared = {name: getattr(args, name) for name in (*DRAWN, "longest")}
    kept_runs = KeptRuns(args.runs, {**asdict(setup), **shared})
    for index in range(args.rounds):
        for load in args.loads:
            what = {"load": load, "round": index, "seed": args.seed + index}
            kept = kept_runs.find(what)
            if kept is not None:
                runs.append(kept)
                continue
            drawn = {name: getattr(args, name) for name in DRAWN}
            drawn |= {"rate": load * args.rate, "seed": args.seed + index}
            sessions, chosen = draw(**drawn)
            title = f"load {load:g}, round {index + 1}: {len(chosen)} of {len(sessions)} sessions"
            with console.status(title), tempfile.TemporaryDirectory() as name:
                run = await serve(setup, sessions, chosen, args.longest, Path(name))
            found = {"setup": asdict(setup), "drawn": drawn, "run": to_wire(run)}
            runs.append({"load": load, "round": index, **found})
            kept_runs.keep(what, runs[-1])


def simulate_again(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Simulate real runs, and return the figures of each."""
    found = []
    for kept in runs:
        sessions, chosen = draw(**kept["drawn"])
        figures = compare(Setup(**kept["setup"]), from_wire(kept["run"]), sessions, chosen)
        found.append({"load": kept["load"], "round": kept["round"], **figures})
    return found


def main(args: argparse.Namespace) -> None:
    """Run really what is not kept, and simulate all of it, and print the tables."""
    console = Console(width=160)
    runs: list[dict[str, Any]] = []
    try:
        asyncio.run(measure(args, console, runs))
    except KeyboardInterrupt:
        console.print("interrupted: what was measured is kept")
    found = simulate_again(runs)
    if found:
        print_report(console, found)
    if len(runs) == args.rounds * len(args.loads):
        tell(args.tables, tables(found))
