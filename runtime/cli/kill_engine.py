"""`caesura demo --kill-engine`: the engine dies in the middle of twelve answers, which all finish.

It starts `caesura serve` with the bundled model and asks it twelve questions at once, as any client
of its endpoint would. Then it asks them again and kills the engine's process meanwhile.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from caesura.runtime.errors import EngineFailed

QUESTIONS = (
    "What is 48 * 17?",
    "What is 391 + 46?",
    "What is 1250 / 8?",
    "What is 7 / 0?",
    "What is 2^16?",
    "I have 12 boxes of 7 eggs. How many eggs do I have?",
    "What is 96 * 31 and what is 15 + 6?",
    "What is 512 - 77?",
    "Write a sentence about 15 boxes of 24 pencils.",
    "Write a sentence about 9 bags of 13 apples.",
    "What is 1250 / 8 and what is 391 + 46?",
    "What is 33 * 3 and what is 1000 - 1?",
)
ENGINE = b"EngineCore"
"""What the command line of an engine's process holds."""
SERVE = (
    *("-m", "caesura", "serve", "--port", "0", "--no-calibrate", "--no-trace"),
    *("--", "--kv-cache-memory-bytes", str(64 << 20)),
)


@dataclass
class Stream:
    """One streamed answer."""

    question: str
    text: str = ""
    tools: int = 0
    """How many calls of tools the server says that it ran."""
    times: list[float] = field(default_factory=list)
    """When each piece of the text came, by a monotonic clock in seconds."""
    error: str = ""

    def silence(self, killed: float) -> float | None:
        """Return the longest time without text from the death on, in seconds.

        The first piece behind the death does not tell it: the server may have sent that before.
        None: all of the text had come.
        """
        late = [at for at in self.times if at > killed]
        return max((later - at for at, later in pairwise([killed, *late])), default=None)


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    url: str
    process: asyncio.subprocess.Process

    def engines(self) -> list[int]:
        """Return the processes of its engine."""
        return children(self.process.pid, ENGINE)


def children(process: int, named: bytes) -> list[int]:
    """Return the processes that a process started and whose command lines hold `named`.

    They come from Linux' /proc.
    """
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    started = [int(pid) for each in tasks for pid in each.read_text().split()]
    return [pid for pid in started if named in Path(f"/proc/{pid}/cmdline").read_bytes()]


@asynccontextmanager
async def serving(*options: str, vllm: Sequence[str] = ()) -> AsyncIterator[Server]:
    """Start `caesura serve` with the bundled model, and stop it at the end.

    `vllm` are options of vLLM's. Raises `EngineFailed` if it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="caesura-") as state:
        split = SERVE.index("--")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *SERVE[:split], *options, *SERVE[split:], *vllm),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "XDG_STATE_HOME": state},
            cwd=state,
        )
        assert process.stdout is not None
        try:
            url = (await process.stdout.readline()).decode().strip()
            if not url:
                raise EngineFailed("the server did not start; run `caesura serve` to see why")
            yield Server(url, process)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await process.wait()


async def ask_all(url: str, took: Callable[[int], None] = lambda pieces: None) -> list[Stream]:
    """Ask all questions at once, and return the answers; `took` is told how many pieces came."""
    streams = [Stream(question) for question in QUESTIONS]

    def count() -> None:
        took(sum(len(stream.times) for stream in streams))

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        await asyncio.gather(*(_ask(http, url, stream, count) for stream in streams))
    return streams


async def _ask(
    http: aiohttp.ClientSession, url: str, stream: Stream, count: Callable[[], None]
) -> None:
    body = {
        "model": "caesura-tiny",
        "messages": [{"role": "user", "content": stream.question}],
        "server_tools": ["calculator"],
        "temperature": 0,
        "max_tokens": 160,
        "stream": True,
    }
    async with http.post(f"{url}/chat/completions", json=body) as response:
        if response.status != 200:
            stream.error = await response.text()
            return
        async for line in response.content:
            if line.startswith(b"data: {"):
                _take(stream, json.loads(line[6:]))
                count()


def _take(stream: Stream, chunk: dict[str, object]) -> None:
    """Add one chunk of an answer."""
    if "error" in chunk:
        stream.error = json.dumps(chunk["error"])
    ran = chunk.get("caesura")
    if isinstance(ran, dict):
        stream.tools += len(ran.get("calls") or ())
    choices = chunk.get("choices")
    text = choices[0]["delta"].get("content") if isinstance(choices, list) and choices else None
    if text:
        stream.text += text
        stream.times.append(time.monotonic())


async def ask_and_kill(
    server: Server, after: int, victims: Callable[[], list[int]] | None = None
) -> tuple[list[Stream], float]:
    """Ask all questions; kill the engine once `after` pieces came. Return also when that was.

    `victims` returns the processes to kill, if not the engine's own.
    """
    killed: list[float] = []

    def took(pieces: int) -> None:
        if pieces >= after and not killed:
            killed.append(time.monotonic())
            for pid in (victims or server.engines)():
                os.kill(pid, signal.SIGKILL)

    streams = await ask_all(server.url, took)
    return streams, killed[0]


async def show() -> None:
    """Run the demo. Raises `EngineFailed` if an answer is lost or differs."""
    console = Console()
    console.print("A server starts with the bundled model ...")
    async with serving() as server:
        undisturbed = await ask_all(server.url)
        pieces = sum(len(stream.times) for stream in undisturbed)
        console.print(f"It answered {len(QUESTIONS)} questions, in {pieces} pieces of text.")
        console.print("The same questions again; the engine is killed in the middle ...")
        streams, killed = await ask_and_kill(server, pieces // 2)
    console.print(table_of(undisturbed, streams, killed))
    silences = [each for stream in streams if (each := stream.silence(killed)) is not None]
    lost = [
        each for each, before in zip(streams, undisturbed, strict=True) if not same(each, before)
    ]
    if lost or not silences:
        raise EngineFailed(f"{len(lost)} of {len(streams)} answers were lost or differ")
    console.print(
        f"All {len(streams)} answers finished with the texts of the undisturbed run;"
        f" the longest that a client waited for text was {max(silences):.1f} s."
    )


def same(stream: Stream, before: Stream) -> bool:
    """Return whether an answer came whole, as in the undisturbed run."""
    return not stream.error and (stream.text, stream.tools) == (before.text, before.tools)


def table_of(undisturbed: list[Stream], streams: list[Stream], killed: float) -> Table:
    """Return a table of the answers, and of what had come when the engine died."""
    columns = ("question", "calls", "came before the death", "and after it", "longest silence")
    table = Table(*columns, "equal")
    for before, stream in zip(undisturbed, streams, strict=True):
        early = sum(at <= killed for at in stream.times)
        late = len(stream.times) - early
        equal = "yes" if same(stream, before) else stream.error or "no"
        silence = stream.silence(killed)
        waited = "" if silence is None else f"{silence:.1f} s"
        counts = (str(stream.tools), f"{early} pieces", f"{late}")
        table.add_row(stream.question, *counts, waited, equal)
    return table
