"""From a tool's return to the first resumed token, with the KV cache preserved.

A session pauses at a call, its result is pushed at once, and the time to the next token is compared
with a step of the same engine: the time between two tokens of the same session. The difference is
what a resume costs beyond the step that it needs anyway.
"""

import argparse
import asyncio
import itertools
import statistics
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.engines import caesura_engine
from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from caesura.intercept.calls.events import CallFinished, TurnEnded
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools.calculator.tool import calculator

QUESTION = [{"role": "user", "content": "What is 48 * 17?"}]


async def one_session(engine: VllmEngine) -> tuple[float, list[float]]:
    """Return the seconds from the result to the next event, and those between later ones."""
    session = engine.open(SessionSpec(tools=[calculator.spec()]))
    call_id = ""
    async for event in session.turn(QUESTION):
        if isinstance(event, CallFinished):
            call_id = event.call_id
    result = {"role": "tool", "tool_call_id": call_id, "name": "calculator", "content": "816"}
    stamps = [time.perf_counter()]
    async for event in session.turn([result]):
        if isinstance(event, TurnEnded):
            assert event.resume is not None, "the session did not pause"
            assert event.resume.handling == "preserve"
        else:
            stamps.append(time.perf_counter())
    await session.close()
    gaps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    return gaps[0], gaps[1:]


async def measure(sessions: int, console: Console) -> Table:
    """Run sessions one after the other; return a table of what a resume cost, in ms."""
    engine = caesura_engine()
    resumes, steps = [], []
    try:
        for index in track(range(-3, sessions), "sessions", console=console):
            resume, gaps = await one_session(engine)
            if index >= 0:
                resumes.append(resume)
                steps.append(statistics.median(gaps))
    finally:
        await engine.close()
    extra = sorted((r - s) * 1000 for r, s in zip(resumes, steps, strict=True))
    deciles = statistics.quantiles(extra, n=20)
    table = Table(title=f"milliseconds, {sessions} sessions")
    for column in ("first resumed token", "a decoding step", "beyond a step: median", "p5", "p95"):
        table.add_column(column, justify="right")
    medians = (statistics.median(each) * 1000 for each in (resumes, steps))
    figures = (*medians, statistics.median(extra), deciles[0], deciles[-1])
    table.add_row(*(f"{value:.2f}" for value in figures))
    return table


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100)
    add_option(parser)
    args = parser.parse_args()
    console = Console()
    table = asyncio.run(measure(args.sessions, console))
    console.print(table)
    tell(args.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
