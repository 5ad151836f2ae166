"""What the journal costs: streamed responses with tools, with a journal and without, in turns.

One engine with the bundled model serves two applications in this process. Each round sends the same
number of fresh questions to both, in an order that changes. Responses are stored in both arms. The
ratios are of the arm with a journal to the one without, round by round: throughput below 1, time to
the first token above 1 and CPU time above 1 are costs. The arm "off again" is a second application
without a journal, so that its ratios are noise. CPU time is this process's, clients included.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from benchmarks.pairs import ratio
from caesura.runtime.journal.store import SqliteJournal
from caesura.runtime.launch import start_engine
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.responses.store import SqliteResponses
from caesura.tools.calculator.tool import calculator
from caesura.tools.registry import Registry

ARMS = ("off", "on", "off again")
WHAT = ("throughput", "first token", "cpu")


async def one(http: aiohttp.ClientSession, model: str, question: str) -> tuple[int, float]:
    """Ask one question; return the output's tokens, and the seconds to the first text or call."""
    body = {"model": model, "input": question, "stream": True, "temperature": 0}
    body |= {"server_tools": ["calculator"], "max_output_tokens": 64}
    began, first, tokens = time.perf_counter(), 0.0, 0
    async with http.post("/v1/responses", json=body) as response:
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if not first and event["type"] not in ("response.created", "response.in_progress"):
                first = time.perf_counter() - began
            if event["type"] in ("response.completed", "response.incomplete"):
                tokens = event["response"]["usage"]["output_tokens"]
    return tokens, first


async def one_round(url: str, model: str, questions: list[str]) -> dict[str, float]:
    """Ask all at once."""
    began, used = time.perf_counter(), time.process_time()
    async with aiohttp.ClientSession(base_url=url) as http:
        done = await asyncio.gather(*(one(http, model, question) for question in questions))
    seconds = time.perf_counter() - began
    return {
        "throughput": sum(tokens for tokens, _ in done) / seconds,
        "first token": statistics.fmean(first for _, first in done),
        "cpu": (time.process_time() - used) / len(questions) * 1e3,
    }


async def measure(rounds: int, concurrency: int, directory: Path) -> Table:
    """Run the rounds; return a table of medians and ratios."""
    rng = random.Random(0)
    seen: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    async with AsyncExitStack() as stack:
        engine = await start_engine()
        stack.push_async_callback(engine.close)
        urls = {}
        for arm in ARMS:
            store = SqliteResponses(directory / f"{arm}.sqlite")
            journal = SqliteJournal(directory / "journal.sqlite") if arm == "on" else None
            app = create_app(
                engine, Registry([calculator]), parts=ServerParts(store=store, journal=journal)
            )
            port = await stack.enter_async_context(listening(app))
            urls[arm] = f"http://127.0.0.1:{port}"
        for number in range(-2, rounds):  # the first two do not count
            order = ARMS[number % 3 :] + ARMS[: number % 3]
            for arm in order if number % 2 else reversed(order):
                questions = [
                    f"What is {rng.randrange(100, 1000)} * {rng.randrange(10, 100)}?"
                    for _ in range(concurrency)
                ]
                result = await one_round(urls[arm], engine.model, questions)
                if number >= 0:
                    seen[arm].append(result)
    return _table(seen)


def _table(seen: dict[str, list[dict[str, float]]]) -> Table:
    table = Table("", "off", "on", "on / off", "off again / off (noise)")
    for what in WHAT:
        arms = {arm: [each[what] for each in rounds] for arm, rounds in seen.items()}
        middle = {arm: statistics.median(values) for arm, values in arms.items()}
        ratios = [str(ratio(arms[arm], arms["off"])) for arm in ("on", "off again")]
        table.add_row(what, f"{middle['off']:.4g}", f"{middle['on']:.4g}", *ratios)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=8)
    add_option(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        table = asyncio.run(measure(asked.rounds, asked.concurrency, Path(directory)))
    console = Console()
    console.print(f"{asked.rounds} rounds of {asked.concurrency} responses in each arm")
    console.print("medians: tokens/s, s, CPU ms of a response; ratios with the middle half")
    console.print(table)
    tell(asked.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
