"""What tracing costs: agents on one engine that record, that send spans, and that do neither.

Each round sends fresh questions to the bundled model, all at once, in each of the three arms, in
an order that changes. A run is two turns and a tool call: four spans, and six entries of a
recording beside the engine's records, which only that arm takes. The sink of the spans is a process
of its own that decodes what it gets. Ratios are to the arm without tracing, round by round:
throughput above 1 and latency below 1 are in tracing's favour, which would be noise. CPU time is
this process's, without the engine's.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from benchmarks.pairs import ratio
from caesura.runtime.engine import Engine
from caesura.runtime.launch import record, start_engine
from caesura.runtime.receiver import HTTP, Receiver
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.server.listen import allow_thread_switches, frozen_heap
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.tracing import exporter_of
from caesura.scheduler.messages import Sampling


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
    """Ask all at once; return tokens per second, the mean latency in s, and CPU ms of a run."""

    async def ask(question: str) -> tuple[int, float]:
        began = time.perf_counter()
        answer = await agent.run(question)
        return answer.usage.completion_tokens, time.perf_counter() - began

    began, used = time.perf_counter(), time.process_time()
    done = await asyncio.gather(*map(ask, questions))
    seconds = time.perf_counter() - began
    return {
        "throughput": sum(tokens for tokens, _ in done) / seconds,
        "latency": statistics.fmean(latency for _, latency in done),
        "cpu": (time.process_time() - used) / len(questions) * 1e3,
    }


class Arms:
    """The same agent without tracing, with a store, and with spans sent to a sink."""

    def __init__(self, engine: Engine, exports: Exports, recorder: Recorder) -> None:
        def agent(**traced: Any) -> Agent:
            sampling = Sampling(temperature=0.0, max_tokens=64)
            return Agent(engine, ["calculator"], sampling=sampling, **traced)

        self._engine = engine
        self._recorder = recorder
        self._agents = {
            "off": agent(tracing=False),
            "store": agent(tracing=False, recorder=recorder),
            "OTLP": agent(tracing=exports),
        }
        self.seen: dict[str, list[dict[str, float]]] = {name: [] for name in self._agents}

    async def round(self, index: int, concurrency: int, rng: random.Random) -> None:
        """Ask in each arm, in an order that changes; rounds before 0 do not count."""
        names = list(self._agents)
        start = index % len(names)
        order = names[start:] + names[:start]
        for name in order if index % 2 else reversed(order):
            questions = [
                f"What is {rng.randrange(100, 1000)} * {rng.randrange(10, 100)}?"
                for _ in range(concurrency)
            ]
            stop = record(self._engine, self._recorder) if name == "store" else lambda: None
            try:
                result = await one_round(self._agents[name], questions)
            finally:
                stop()
            if index >= 0:
                self.seen[name].append(result)


async def measure(rounds: int, concurrency: int, url: str, console: Console) -> Table:
    """Run the rounds; return a table of ratios."""
    receiver = Receiver(HTTP, f"{url}/v1/traces")
    exports = Exports(lambda: exporter_of(receiver), url)
    engine = await start_engine()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(Store(Path(directory, "traces.sqlite")))
        arms = Arms(engine, exports, recorder)
        allow_thread_switches()  # as a server does
        try:
            with frozen_heap():
                for index in track(range(-1, rounds), f"{concurrency} at once", console=console):
                    await arms.round(index, concurrency, rng)
            await asyncio.to_thread(exports.force_flush)
            with await asyncio.to_thread(urllib.request.urlopen, f"{url}/count") as answer:
                taken = int(answer.read())
        finally:
            await asyncio.to_thread(exports.shutdown)
            await asyncio.to_thread(recorder.close)
            await engine.close()
    kept = {"store": (recorder.written, recorder.dropped), "OTLP": (taken, exports.dropped)}
    return report(arms.seen, kept, concurrency)


def report(
    seen: dict[str, list[dict[str, float]]], kept: dict[str, tuple[int, int]], concurrency: int
) -> Table:
    """A line per arm: what it decoded, against the rounds without tracing."""
    rounds = len(seen["off"])
    table = Table(title=f"{concurrency} at once; median and middle half of {rounds} rounds")
    for column in ("arm", "tokens/s", "CPU ms/run", "throughput", "latency", "kept", "lost"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, results in seen.items():
        tokens, cpu = (
            statistics.median(each[key] for each in results) for key in ("throughput", "cpu")
        )
        ratios = [
            str(ratio([each[key] for each in results], [each[key] for each in seen["off"]]))
            for key in ("throughput", "latency")
        ]
        told = map(str, kept[name]) if name in kept else ("", "")
        shown = ratios if name in kept else ["1", "1"]
        table.add_row(name, f"{tokens:.0f}", f"{cpu:.2f}", *shown, *told)
    return table


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds of three")
    parser.add_argument("--concurrency", type=int, default=32, help="runs at once")
    parser.add_argument("--sink", action="store_true", help="be the sink, and nothing else")
    add_option(parser)
    args = parser.parse_args()
    if args.sink:
        asyncio.run(sink())
        return
    console = Console(width=110)
    with sink_process() as url:
        table = asyncio.run(measure(args.rounds, args.concurrency, url, console))
    console.print(table)
    tell(args.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
