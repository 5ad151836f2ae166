"""What tracing costs: agents on one engine with spans sent to a sink, against without, in pairs.

Each round sends fresh questions to the bundled model, all at once, with tracing on and then off, or
the other way round. A run is two turns and a tool call: four spans. The sink is a process of its
own that decodes what it gets. Ratios are on / off, per pair: throughput above 1 and latency below
1 are in tracing's favour, which would be noise.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.pairs import ratio
from caesura.runtime.agent import Agent
from caesura.runtime.launch import start_engine
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.setup import HTTP, Receiver
from caesura.runtime.tracing.tracing import exporter_of
from caesura.scheduler.records import Sampling


async def sink() -> None:
    """Take spans, count them, and tell how many under /count; the port goes to stdout."""
    taken = 0

    async def take(request: web.Request) -> web.Response:
        nonlocal taken
        message = ExportTraceServiceRequest.FromString(await request.read())
        taken += sum(len(s.spans) for r in message.resource_spans for s in r.scope_spans)
        return web.Response()

    async def count(request: web.Request) -> web.Response:
        return web.Response(text=str(taken))

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", take)
    app.router.add_get("/count", count)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site.port, flush=True)
    await asyncio.Event().wait()


@contextmanager
def sink_process() -> Iterator[str]:
    """Run the sink beside us; its URL."""
    command = [sys.executable, "-m", "benchmarks.tracing", "--sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def one_round(agent: Agent, questions: list[str]) -> dict[str, float]:
    """Ask all at once; return decoded tokens per second and the mean latency in seconds."""

    async def ask(question: str) -> tuple[int, float]:
        began = time.perf_counter()
        answer = await agent.run(question)
        return answer.usage.completion_tokens, time.perf_counter() - began

    began = time.perf_counter()
    done = await asyncio.gather(*map(ask, questions))
    seconds = time.perf_counter() - began
    return {
        "throughput": sum(tokens for tokens, _ in done) / seconds,
        "latency": statistics.fmean(latency for _, latency in done),
    }


async def measure(rounds: int, concurrency: int, url: str, console: Console) -> Table:
    """Run the pairs; return a table of ratios."""
    rng = random.Random(0)
    receiver = Receiver(HTTP, f"{url}/v1/traces")
    exports = Exports(lambda: exporter_of(receiver), url)
    engine = await start_engine()
    sampling = Sampling(temperature=0.0, max_tokens=64)
    agents = {
        "on": Agent(engine, ["calculator"], sampling=sampling, tracing=exports),
        "off": Agent(engine, ["calculator"], sampling=sampling, tracing=False),
    }
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in agents}
    try:
        for index in track(range(-1, rounds), f"{concurrency} at once", console=console):
            for name in list(agents) if index % 2 else list(reversed(agents)):
                questions = [
                    f"What is {rng.randrange(100, 1000)} * {rng.randrange(10, 100)}?"
                    for _ in range(concurrency)
                ]
                result = await one_round(agents[name], questions)
                if index >= 0:
                    seen[name].append(result)
        await asyncio.to_thread(exports.force_flush)
        with await asyncio.to_thread(urllib.request.urlopen, f"{url}/count") as answer:
            taken = int(answer.read())
    finally:
        await asyncio.to_thread(exports.shutdown)
        await engine.close()
    title = f"tracing on / off, {concurrency} at once; median [middle half of {rounds} pairs]"
    table = Table(title=title)
    for column in ("throughput", "latency", "spans received", "spans dropped"):
        table.add_column(column, justify="right")
    ratios = [
        ratio([each[key] for each in seen["on"]], [each[key] for each in seen["off"]])
        for key in ("throughput", "latency")
    ]
    table.add_row(*map(str, ratios), str(taken), str(exports.dropped))
    return table


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="pairs")
    parser.add_argument("--concurrency", type=int, default=32, help="runs at once")
    parser.add_argument("--sink", action="store_true", help="be the sink, and nothing else")
    args = parser.parse_args()
    if args.sink:
        asyncio.run(sink())
        return
    console = Console(width=110)
    with sink_process() as url:
        console.print(asyncio.run(measure(args.rounds, args.concurrency, url, console)))


if __name__ == "__main__":
    main()
