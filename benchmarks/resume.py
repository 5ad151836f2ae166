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

from benchmarks.engines import caesura_engine
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


async def measure(sessions: int, console: Console) -> None:
    """Run sessions one after the other and print what a resume cost."""
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
    console.print(
        f"first resumed token after {statistics.median(resumes) * 1000:.2f} ms, a step takes "
        f"{statistics.median(steps) * 1000:.2f} ms (medians of {sessions} sessions);\n"
        f"beyond one step: median {statistics.median(extra):.2f} ms, "
        f"p5 {deciles[0]:.2f}, p95 {deciles[-1]:.2f} ms"
    )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100)
    asyncio.run(measure(parser.parse_args().sessions, Console()))


if __name__ == "__main__":
    main()
