"""All loads, round by round."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.validate.compare import compare, draw
from benchmarks.validate.kept import from_wire, to_wire
from benchmarks.validate.real import Setup, serve
from benchmarks.validate.report import print_report

DRAWN = ("rate", "seconds", "warm_up", "tail")


async def measure(args: argparse.Namespace, console: Console, runs: list[dict[str, Any]]) -> None:
    """Run all rounds; `runs` holds what has been run, whenever it ends."""
    setup = Setup(kv_tokens=args.kv_tokens, handling=args.handling)
    for index in range(args.rounds):
        for load in args.loads:
            drawn = {name: getattr(args, name) for name in DRAWN}
            drawn |= {"rate": load * args.rate, "seed": args.seed + index}
            sessions, chosen = draw(**drawn)
            title = f"load {load:g}, round {index + 1}: {len(chosen)} of {len(sessions)} sessions"
            with console.status(title), tempfile.TemporaryDirectory() as name:
                run = await serve(setup, sessions, chosen, args.longest, Path(name))
            kept = {"setup": asdict(setup), "drawn": drawn, "run": to_wire(run)}
            runs.append({"load": load, "round": index, **kept})
            save({"runs": runs}, args.out)


def save(results: dict[str, Any], out: Path) -> None:
    """Write the results; a reader sees the old file or the new one."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(results))
    beside.replace(out)


def simulate_again(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Simulate real runs, and return the figures of each."""
    found = []
    for kept in runs:
        sessions, chosen = draw(**kept["drawn"])
        figures = compare(Setup(**kept["setup"]), from_wire(kept["run"]), sessions, chosen)
        found.append({"load": kept["load"], "round": kept["round"], **figures})
    return found


def main(args: argparse.Namespace) -> None:
    """Run really, or take what was, and simulate it, and print the tables."""
    console = Console(width=160)
    runs: list[dict[str, Any]] = []
    for path in args.again:
        runs += json.loads(path.read_text())["runs"]
    if not args.again:
        try:
            asyncio.run(measure(args, console, runs))
        except KeyboardInterrupt:
            console.print("interrupted")
    if runs:
        print_report(console, simulate_again(runs))
