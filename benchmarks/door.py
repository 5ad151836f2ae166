"""`caesura serve` against vLLM's own server, on the same scheduler, in pairs.

Two servers of one model stand side by side: vLLM's own, started with Caesura's scheduler, and
`caesura serve`, which hands these requests to vLLM's application. Both read calls with vLLM's
parser of the model's format. Each round streams the same chat completions from both, one after the
other, in changing order. Ratios are Caesura / vLLM, per pair.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from benchmarks.pairs import ratio
from caesura.runtime.launch import BUNDLED_MODEL

ENGINE = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "2048", "--block-size", "32")
CALLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
"""`caesura serve` chooses this parser by the model's chat template."""
MEMORY = ("--kv-cache-memory-bytes", str(256 << 20))
CONNECTOR = {
    "kv_connector": "CaesuraConnector",
    "kv_connector_module_path": "caesura.scheduler.vllm",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
    "kv_connector_extra_config": {"host_gib": 4.0},
}
SCHEDULER = (
    *("--scheduler-cls", "caesura.scheduler.vllm.CaesuraAsyncScheduler"),
    *("--kv-transfer-config", json.dumps(CONNECTOR)),
)
START_SECONDS = 600
NAME = "tiny"
IN_PROCESS = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}


@contextmanager
def server(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a server by Python's arguments behind `-m`, whose `{port}` is the port.

    The server is stopped at the end. Yields its address; raises `RuntimeError` without one.
    """
    arguments = [part.replace("{port}", str(port)) for part in command]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=log,
            stderr=log,
            env=environment,
        )
        try:
            asyncio.run(_healthy(f"http://127.0.0.1:{port}", process))
            yield f"http://127.0.0.1:{port}"
        except RuntimeError:
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def vllm_command() -> list[str]:
    """Return the command of vLLM's own server."""
    names = ("--model", BUNDLED_MODEL, "--served-model-name", NAME, "--port", "{port}")
    logs = ("--disable-uvicorn-access-log", "--uvicorn-log-level", "error")
    options = (*names, *CALLS, *ENGINE, *MEMORY, *SCHEDULER, *logs)
    return ["vllm.entrypoints.openai.api_server", *options]


def caesura_command(folder: Path) -> list[str]:
    """Return the command of Caesura's server, with everything on that it has by default."""
    ours = ("serve", "--port", "{port}", "--served-model-name", NAME, "--no-calibrate")
    traces, responses = str(folder / "traces.sqlite"), str(folder / "responses.sqlite")
    return ["caesura", *ours, "--trace", traces, "--responses", responses]


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < ends and process.poll() is None:
            try:
                # vLLM's own server has no /ready, and no /health before it takes work.
                for path in ("/ready", "/health"):
                    async with http.get(f"{url}{path}") as answer:
                        status = answer.status
                    if status != 404:
                        break
                if status == 200:
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.5)
    raise RuntimeError(f"the server at {url} did not start")


async def one_request(http: aiohttp.ClientSession, url: str, text: str, tokens: int) -> float:
    """Stream one answer; return its time to first token in seconds."""
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    began, first = time.perf_counter(), 0.0
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not first and b'"content":"' in line and b'"content":""' not in line:
                first = time.perf_counter() - began
    return first


async def one_round(url: str, texts: list[str], tokens: int) -> dict[str, float]:
    """Stream all answers at once; return tokens per second and the median TTFT in seconds."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        began = time.perf_counter()
        first = await asyncio.gather(*(one_request(http, url, text, tokens) for text in texts))
        seconds = time.perf_counter() - began
    return {"throughput": len(texts) * tokens / seconds, "ttft": statistics.median(first)}


def measure(rounds: int, tokens: int, concurrency: list[int], console: Console) -> Table:
    """Run the pairs; return a table of ratios."""
    rng = random.Random(0)
    table = Table(title=f"caesura serve / vLLM's server; median \\[middle half, {rounds} pairs]")
    for column in ("streams", "throughput", "TTFT", "TTFT, ms more"):
        table.add_column(column, justify="right")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            "vllm": stack.enter_context(server(vllm_command(), free_port(), IN_PROCESS)),
            "caesura": stack.enter_context(
                server(caesura_command(folder), free_port(), IN_PROCESS)
            ),
        }
        for count in concurrency:
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in urls}
            for index in track(range(-1, rounds), f"{count} streams", console=console):
                texts = [" ".join(str(rng.randrange(10**6)) for _ in range(8))] * count
                order = list(urls) if index % 2 else list(reversed(urls))
                for name in order:
                    result = asyncio.run(one_round(urls[name], texts, tokens))
                    if index >= 0:
                        seen[name].append(result)
            ours, theirs = seen["caesura"], seen["vllm"]
            ratios = [
                ratio([r[key] for r in ours], [r[key] for r in theirs])
                for key in ("throughput", "ttft")
            ]
            pairs = zip(ours, theirs, strict=True)
            more = sorted(1000 * (a["ttft"] - b["ttft"]) for a, b in pairs)
            low, middle, high = more[rounds // 4], statistics.median(more), more[-1 - rounds // 4]
            told = f"{middle:+.1f} [{low:+.1f} .. {high:+.1f}]"
            table.add_row(str(count), *map(str, ratios), told)
    return table


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="pairs per concurrency")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode per request")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 64])
    add_option(parser)
    args = parser.parse_args()
    console = Console(width=110)
    table = measure(args.rounds, args.tokens, args.concurrency, console)
    console.print(table)
    tell(args.tables, [Told.drawn(table)])


if __name__ == "__main__":
    main()
