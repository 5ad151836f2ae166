"""Whether tools at work disturb a stream: its intervals while all are busy, and while none is.

The real server streams a scripted answer, a token every 5 ms, to a client of the same process.
Rounds without any other request and rounds in which other requests keep tools busy take turns:
workers that compute, threads that wait, a slow HTTP service with long answers. Threads that compute
in Python hold its lock and do disturb the stream: `--kinds compute_in_thread` shows how much.
"""

import asyncio
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.pairs import ratio
from caesura.intercept.calls.events import Event, TextDelta
from caesura.runtime.server import create_app
from caesura.runtime.server.listen import allow_thread_switches, frozen_heap, listening
from caesura.runtime.testing import ScriptedEngine
from caesura.runtime.testing.script import Item, call, say
from caesura.scheduler.messages import Message, ToolSpec
from caesura.tools import Registry, Tool, tool
from caesura.tools.worker import WorkerPool

TOKEN_SECONDS = 0.005
HTTP_SECONDS = 0.05
ANSWER_BYTES = 200_000
KINDS = ("compute", "wait", "fetch", "compute_in_thread")


def make_tools(pool: WorkerPool, http: aiohttp.ClientSession, url: str) -> list[Tool]:
    """One tool of each kind."""

    @tool
    async def compute() -> str:
        """Compute in a worker process for about 0.2 s."""
        return str(await pool.call("timeit", stmt="sum(range(10000))", number=2000))

    @tool
    def wait() -> str:
        """Wait in a thread."""
        time.sleep(0.05)
        return "waited"

    @tool
    def compute_in_thread() -> int:
        """Compute in a thread, in Python, for about 0.05 s."""
        return sum(number * number for number in range(600_000))

    @tool
    async def fetch() -> str:
        """Ask a slow service."""
        async with http.get(url) as response:
            return await response.text()

    return [compute, wait, compute_in_thread, fetch]


def script(tokens: int):  # type: ignore[no-untyped-def]
    """Answer "stream" with `tokens` tokens, and the name of a tool with a call of it."""

    def turn(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
        last = messages[-1]
        if last["role"] == "user" and last["content"] != "stream":
            return call(last["content"])
        return say("token " * tokens if last["content"] == "stream" else "done")

    return turn


async def pace(event: Event) -> None:
    """Decode at a steady speed; one piece of six characters is a token."""
    if isinstance(event, TextDelta):
        await asyncio.sleep(TOKEN_SECONDS)


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Serve on a free port of the loopback."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}"
    finally:
        await runner.cleanup()


async def slow_service(request: web.Request) -> web.Response:
    await asyncio.sleep(HTTP_SECONDS)
    return web.Response(text="word " * (ANSWER_BYTES // 5))


async def stream(http: aiohttp.ClientSession, url: str) -> list[float]:
    """One streamed answer; the milliseconds between its tokens."""
    messages = [{"role": "user", "content": "stream"}]
    body = {"model": "scripted", "messages": messages, "stream": True}
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        stamps = [
            time.perf_counter()
            async for line in response.content
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"]
        ]
    return [(later - earlier) * 1000 for earlier, later in itertools.pairwise(stamps)]


async def keep_busy(http: aiohttp.ClientSession, url: str, name: str, done: list[str]) -> None:
    """Have one tool called over and over."""
    messages = [{"role": "user", "content": name}]
    body = {"model": "scripted", "messages": messages, "server_tools": [name]}
    while True:
        async with http.post(f"{url}/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            answer = await response.json()
            assert answer["caesura"]["calls"][0]["error"] is None, answer
        done.append(name)


@asynccontextmanager
async def kept_busy(
    http: aiohttp.ClientSession, url: str, names: Sequence[str], done: list[str]
) -> AsyncIterator[None]:
    """Have tools called over and over, from a little before."""
    busy = [asyncio.create_task(keep_busy(http, url, name, done)) for name in names]
    await asyncio.sleep(0.3)
    yield
    for task in busy:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def measure(rounds: int, tokens: int, kinds: Sequence[str], console: Console) -> Table:
    """Run the pairs; return a table of intervals. Each kind of tool is kept busy twice."""
    allow_thread_switches()  # as `caesura serve` does, and the frozen heap below
    services = web.Application()
    services.router.add_get("/", slow_service)
    pool = WorkerPool("timeit", 2)
    await pool.start()
    engine = ScriptedEngine(script(tokens), pace=pace)
    seen: dict[str, list[list[float]]] = {"idle": [], "busy": []}
    done: list[str] = []
    async with aiohttp.ClientSession() as http, served(services) as slow:
        tools = make_tools(pool, http, slow)
        async with listening(create_app(engine, Registry(tools))) as port:
            url = f"http://127.0.0.1:{port}"
            await stream(http, url)
            with frozen_heap():
                for index in track(range(rounds), "pairs", console=console):
                    for state in ("idle", "busy") if index % 2 else ("busy", "idle"):
                        names = [*kinds, *kinds] if state == "busy" else []
                        async with kept_busy(http, url, names, done):
                            seen[state].append(await stream(http, url))
    await pool.aclose()
    return _table(seen, done, tokens)


def _table(seen: dict[str, list[list[float]]], done: list[str], tokens: int) -> Table:
    calls = ", ".join(f"{done.count(name)} {name}" for name in dict.fromkeys(done))
    table = Table(
        title=f"ms between tokens, {len(seen['idle'])} pairs of streams of {tokens}",
        caption=f"calls beside them: {calls}",
    )
    for column in ("", "p50", "p99", "longest"):
        table.add_column(column, justify="right" if column else "left")
    points = {"p50": 50, "p99": 99}
    at = {
        state: {name: [_percentile(each, p) for each in runs] for name, p in points.items()}
        | {"longest": [max(each) for each in runs]}
        for state, runs in seen.items()
    }
    for state, figures in at.items():
        table.add_row(state, *(f"{statistics.median(each):.2f}" for each in figures.values()))
    ratios = [str(ratio(at["busy"][name], at["idle"][name])) for name in at["idle"]]
    table.add_row("busy / idle", *ratios)
    return table


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
