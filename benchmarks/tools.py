"""What the dispatcher and a worker process add to a tool's call, in pairs.

A block of bare calls of a function and a block of the same calls through a `Dispatcher` (JSON
arguments, their validation, time-out, result) stand side by side, in changing order. The overhead
is the difference per call, pair by pair. `--streaming` measures instead whether tools at work
disturb a stream (see `benchmarks.tools_streaming`).
"""

import argparse
import asyncio
import json
import os.path
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import tools_streaming
from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from benchmarks.pairs import ratio
from caesura.tools import Dispatcher, Registry, Tool, ToolCall, tool
from caesura.tools.calculator.tool import calculator
from caesura.tools.context import ToolRun
from caesura.tools.result import ResultLimits
from caesura.tools.worker import WorkerPool

EXPRESSION = "(1234 + 5678) * 91 / 7"


@dataclass(frozen=True)
class Case:
    """A tool, a call of it, and the function that it comes to, called bare."""

    name: str
    tool: Tool
    arguments: dict[str, Any]
    bare: Callable[..., Awaitable[Any]]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def text_length(text: str) -> int:
    """Count characters."""
    return len(text)


async def base_name(p: str) -> str:
    """Tell a path's last part."""
    return os.path.basename(p)  # noqa: PTH119


def cases(pool: WorkerPool) -> list[Case]:
    """The tools that are measured."""

    @tool(name="in_worker", description="A path's last part.")
    async def in_worker(p: str) -> str:
        return str(await pool.call("basename", p=p))

    guarded = tool(breaker=5, concurrency=8, retries=2, safe_to_repeat=True)(add)
    threaded = tool(text_length)
    numbers, path = {"a": 17, "b": 25}, {"p": "/some/where/or/other.txt"}
    expression = {"expression": EXPRESSION}
    return [
        Case("async function", tool(add), numbers, add),
        Case("with slots, breaker, retries", guarded, numbers, add),
        Case("calculator", calculator, expression, calculator.call),
        Case("function in a thread", threaded, {"text": "x" * 40}, threaded.call),
        Case("function in a worker", in_worker, path, base_name),
    ]


async def block(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    """Seconds per call, one after the other."""
    began = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - began) / calls


async def measure(pairs: int, calls: int, console: Console) -> Table:
    """Run the pairs; return a table of times and ratios."""
    table = Table(title=f"median \\[middle half] of {pairs} pairs of {calls} calls; microseconds")
    for column in ("call", "bare", "dispatched", "overhead", "dispatched / bare"):
        table.add_column(column, justify="left" if column == "call" else "right")
    pool = WorkerPool("os.path")
    for case in cases(pool):
        async with Dispatcher(Registry([case.tool]), ToolRun(results=ResultLimits(len))) as session:
            asked = ToolCall("call_1", case.tool.name, json.dumps(case.arguments))
            result = await session.run(asked)
            assert result.error is None, result.content

            async def bare(case: Case = case) -> Any:
                return await case.bare(**case.arguments)

            async def dispatched(session: Dispatcher = session, asked: ToolCall = asked) -> Any:
                return await session.run(asked)

            seen: dict[str, list[float]] = {"bare": [], "dispatched": []}
            for index in track(range(-1, pairs), case.name, console=console):
                both = [("bare", bare), ("dispatched", dispatched)]
                for name, call in both if index % 2 else reversed(both):
                    seconds = await block(call, calls)
                    if index >= 0:
                        seen[name].append(seconds * 1e6)
        table.add_row(case.name, *_figures(seen["bare"], seen["dispatched"]))
    await pool.aclose()
    return table


def _figures(bare: list[float], dispatched: list[float]) -> list[str]:
    more = sorted(b - a for a, b in zip(bare, dispatched, strict=True))
    low, middle, high = statistics.quantiles(more, n=4)
    return [
        f"{statistics.median(bare):.1f}",
        f"{statistics.median(dispatched):.1f}",
        f"{middle:.1f} [{low:.1f} .. {high:.1f}]",
        str(ratio(dispatched, bare)),
    ]


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--calls", type=int, default=200, help="calls in each half of a pair")
    parser.add_argument("--streaming", action="store_true", help="measure a stream's intervals")
    parser.add_argument("--rounds", type=int, default=6, help="pairs, with --streaming")
    parser.add_argument("--tokens", type=int, default=400, help="of a stream, with --streaming")
    kinds = tools_streaming.KINDS
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds[:3], help="of tools")
    add_option(parser)
    args = parser.parse_args()
    console = Console(width=110)
    if args.streaming:
        measured = tools_streaming.measure(args.rounds, args.tokens, args.kinds, console)
    else:
        measured = measure(args.pairs, args.calls, console)
    table = asyncio.run(measured)
    console.print(table)
    tell(args.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
