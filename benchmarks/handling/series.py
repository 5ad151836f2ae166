"""A series: all systems at all loads, round by round, in changing order."""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.handling.mix import Mix
from benchmarks.handling.replay import Replay
from benchmarks.handling.report import print_report
from benchmarks.handling.run import Plan, run
from benchmarks.handling.speed import measure_speed, saturation
from benchmarks.handling.systems import BLOCK_SIZE, CONTEXT_TOKENS, Settings
from benchmarks.handling.workload import Session, Speed, counted, peak_context, poisson

TYPICAL = Speed(prefill_seconds=1 / 2500, decode_seconds=0.001, step_seconds=0.02)
"""For the size of the pool, which must not depend on how busy the machine happens to be."""


def sessions_of(args: argparse.Namespace, rate: float, seed: int) -> list[Session]:
    """Draw the sessions of a run."""
    kind = Mix if args.workload == "mix" else Replay
    draw = kind(args.token_scale, args.pause_scale, CONTEXT_TOKENS).draw
    return poisson(draw, rate, args.window, seed)


def plans(args: argparse.Namespace, rate: float) -> list[Plan]:
    """List the runs; every second round goes through the systems backwards."""
    planned = []
    for index in range(args.rounds):
        for load in args.loads:
            sessions = sessions_of(args, load * rate, args.seed + index)
            chosen = counted(sessions, args.warm_up, args.window + args.tail)
            systems = args.systems if index % 2 == 0 else args.systems[::-1]
            planned += [
                Plan(system, load, index, sessions, chosen, args.longest) for system in systems
            ]
    return planned


def pool_blocks(args: argparse.Namespace, rate: float) -> int:
    """Size the KV cache to a part of what all sessions hold at the highest load."""
    sessions = sessions_of(args, max(args.loads) * rate, args.seed)
    wanted = args.pool * peak_context(sessions, TYPICAL) / BLOCK_SIZE
    # vLLM starts only if one whole context fits.
    return max(round(wanted), CONTEXT_TOKENS // BLOCK_SIZE)


async def measure(args: argparse.Namespace, console: Console, results: dict[str, Any]) -> None:
    """Run the series; `results` holds what has been measured, whenever it ends."""
    settings = Settings(
        blocks=args.blocks or 0,
        model=args.model,
        batched_tokens=args.batched_tokens,
        host_gib=args.host_gib,
        swap=not args.no_swap,
        calibration=args.calibration,
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rate = args.rate
        if rate is None:
            with console.status("measuring the model"):
                speed, results["speed"] = await measure_speed(settings, directory)
            rate = saturation(sessions_of(args, 10, args.seed), speed)
            console.print(results["speed"])
        settings = Settings(**{**vars(settings), "blocks": args.blocks or pool_blocks(args, rate)})
        results["settings"] |= {"rate": rate, "blocks": settings.blocks}
        console.print(f"load 1: --rate {rate:.3f} sessions/s; KV: --blocks {settings.blocks}")
        await _run_all(plans(args, rate), settings, directory, console, results, args.out)


async def _run_all(
    planned: list[Plan],
    settings: Settings,
    directory: Path,
    console: Console,
    results: dict[str, Any],
    out: Path,
) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("runs", total=len(planned))
        for plan in planned:
            title = f"{plan.system}, load {plan.load:g}, round {plan.round + 1}"
            task = progress.add_task(title, total=len(plan.counted))
            results["runs"].append(
                await run(
                    plan,
                    settings,
                    directory,
                    lambda done, task=task: progress.update(task, completed=done),
                )
            )
            progress.remove_task(task)
            progress.advance(whole)
            save(results, out)


def save(results: dict[str, Any], out: Path) -> None:
    """Write the results; a reader sees the old file or the new one."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(results))
    beside.replace(out)


def main(args: argparse.Namespace) -> None:
    """Measure or show, and print the tables."""
    console = Console(width=180)
    if args.show:
        print_report(console, json.loads(args.show.read_text()))
        return
    given = {key: value for key, value in vars(args).items() if not isinstance(value, Path)}
    results: dict[str, Any] = {"settings": given, "runs": []}
    try:
        asyncio.run(measure(args, console, results))
    except KeyboardInterrupt:
        console.print("interrupted")
    if results["runs"]:
        print_report(console, results)
        console.print(f"all numbers: {args.out}")
