"""A plan as a table for the terminal."""

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from caesura.planning.plan import Makespan, Placement, Plan

GIB = 1 << 30

MemoryBytes = Callable[[Placement], float]
"""The bytes that a placement takes of each of its devices."""


def plan_table(plan: Plan, memory: MemoryBytes) -> Table:
    """Return a row per stage and model, with its execution plan, memory and seconds.

    `dp` are its replicas, `tp` the devices of each, and GiB is the memory on each device. Rows of
    placements that run on from the stage before are dimmed.
    """
    table = Table(box=SIMPLE_HEAD, title_justify="left")
    table.add_column("stage", justify="right")
    table.add_column("model", no_wrap=True)
    for name in ("dp", "tp", "devices", "GiB"):
        table.add_column(name, justify="right")
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("finishes")
    at = 0.0
    before: tuple[Placement, ...] = ()
    for number, stage in enumerate(plan.stages, 1):
        for first, one in enumerate(stage.placements):
            shared = f" ({one.shares})" if one.shares else ""
            table.add_row(
                "" if first else str(number),
                escape(one.model),
                str(one.replicas),
                str(one.tensor_parallel),
                f"{one.devices}{escape(shared)}",
                f"{memory(one) / GIB:.2f}",
                "" if first else f"{at:.0f} to {at + stage.seconds:.0f}",
                "yes" if one.model in stage.finishes else "",
                style="dim" if one in before else None,
            )
        at += stage.seconds
        before = stage.placements
    return table


def makespan_text(makespan: Makespan) -> str:
    """Return the expected seconds, with the range over the draws of output lengths."""
    if makespan.low == makespan.high:
        return f"{makespan.mean:.1f} s"
    return f"{makespan.mean:.1f} s ({makespan.low:.1f} to {makespan.high:.1f} s)"
