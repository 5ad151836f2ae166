"""All links, one engine after the other, and the table of what they showed."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from benchmarks.evidence.tables import Table, tell
from benchmarks.pairs import ratio
from benchmarks.slow_link.measure import LinkRun, measure_link
from caesura.intercept.kv.costs import PRIOR, CostModel, CostTracker

NEAR = 0.1
"""A learned rate counts as found within this share of the true one."""


def row_of(run: LinkRun) -> dict[str, Any]:
    """Return what a run showed, as plain data."""
    cost, size = run.calibration.cost, run.calibration.bytes_per_token
    true = run.gb_per_second * 1e9 / size
    guessed = CostTracker(CostModel(**{**cost.to_wire(), **_guess()}), link_guessed=True)
    return {
        "gb_per_second": run.gb_per_second,
        "link_tokens_per_second": true,
        "recompute_tokens_per_second": 1 / cost.prefill_seconds_per_token,
        "calibrated": {"out": cost.out_rate / true, "in": cost.in_rate / true},
        **learned(guessed, run.copies, true),
        "pairs": {
            str(beside): [[asdict(each) for each in pair] for pair in pairs]
            for beside, pairs in run.pairs.items()
        },
    }


def _guess() -> dict[str, float]:
    return {"out_rate": PRIOR.out_rate, "in_rate": PRIOR.in_rate}


def learned(
    tracker: CostTracker, copies: Sequence[tuple[str, int, float, float]], true: float
) -> dict[str, Any]:
    """Return the rates that the tracker learns, as shares of the true one, and what it decides.

    `copies_until_near` is the number of copies after which a rate stays within a tenth of the
    true one, by direction, and None if it does not.
    """
    near: dict[str, int | None] = {"out": None, "in": None}
    count = {"out": 0, "in": 0}
    for direction, tokens, seconds, _ in copies:
        way = "out" if direction == "out" else "in"
        tracker.observe_copy("out" if way == "out" else "in", tokens, seconds)
        count[way] += 1
        rate = tracker.model.out_rate if way == "out" else tracker.model.in_rate
        if abs(rate / true - 1) > NEAR:
            near[way] = None
        elif near[way] is None:
            near[way] = count[way]
    model = tracker.model
    return {
        "learned": {"out": model.out_rate / true, "in": model.in_rate / true},
        "copies_until_near": near,
        "copies": count,
        "swaps": model.swap_pays,
    }


def delay(one: Mapping[str, float], beside: int) -> float:
    """Return the delay of all requests together, in seconds."""
    return one["seconds"] + beside * one["lost_seconds"]


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table, a row for each link."""
    beside = sorted({int(each) for row in rows for each in row["pairs"]})
    titles = ["link GB/s", "of recomputing", "learned out, in", "copies", "swaps"]
    titles += [f"TTFT, {each} beside" for each in beside]
    titles += [f"all, {each} beside" for each in beside if each]
    ordered = sorted(rows, key=lambda one: one["gb_per_second"])
    return Table.of(titles, [_cells(row, beside) for row in ordered])


def _cells(row: Mapping[str, Any], beside: Sequence[int]) -> list[str]:
    cells = [
        f"{row['gb_per_second']:g}",
        f"{row['link_tokens_per_second'] / row['recompute_tokens_per_second']:.2f}",
        f"{row['learned']['out']:.2f}, {row['learned']['in']:.2f}",
        f"{_count(row, 'out')}, {_count(row, 'in')}",
        "yes" if row["swaps"] else "no",
    ]
    for whole in (False, True):
        for each in beside:
            pairs = row["pairs"].get(str(each), [])
            if whole and not each:
                continue
            at = each if whole else 0
            loads = [delay(load, at) for load, _ in pairs]
            cells.append(str(ratio(loads, [delay(other, at) for _, other in pairs])))
    return cells


def _count(row: Mapping[str, Any], way: str) -> str:
    near = row["copies_until_near"][way]
    return f"{near} of {row['copies'][way]}" if near is not None else f"- of {row['copies'][way]}"


async def _measure(
    args: argparse.Namespace, links: Sequence[float], console: Console, rows: list[dict[str, Any]]
) -> None:
    for index, link in enumerate(links):
        title = f"link {index + 1} of {len(links)}, {link:g} GB/s"
        with console.status(title) as status:
            run = await measure_link(
                link,
                args.context,
                args.beside,
                args.pairs,
                lambda what, title=title: status.update(f"{title}: {what}"),
            )
        rows.append(row_of(run))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(rows))
        console.print(table(rows[-1:]).markdown(), highlight=False, soft_wrap=True)


def main(args: argparse.Namespace) -> None:
    """Measure what is not kept, or only show, and print the table."""
    console = Console(width=200)
    kept: list[dict[str, Any]] = json.loads(args.out.read_text()) if args.out.exists() else []
    rows = [row for row in kept if row["gb_per_second"] in args.links]
    missing = [link for link in args.links if link not in {row["gb_per_second"] for row in rows}]
    if not args.show:
        try:
            asyncio.run(_measure(args, missing, console, rows))
        except KeyboardInterrupt:
            console.print("interrupted: the links that were measured are kept")
    if not rows:
        console.print(f"nothing is kept in {args.out}")
        return
    found = table(rows)
    console.print(found.markdown(), highlight=False, soft_wrap=True)
    if len(rows) == len(args.links):
        tell(args.tables, [found])
