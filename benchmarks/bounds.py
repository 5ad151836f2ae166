"""What bounds on connections cost a server without keys: pairs of runs with them and without.

Both servers run in this process, over a scripted engine; one is asked after the other, again and
again. Run `python -m benchmarks.bounds`.
"""

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from statistics import median
from unittest import mock

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from benchmarks.evidence.tables import Table, add_option, tell
from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening, loop_factory
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry

BODY = b'{"model":"scripted","messages":[{"role":"user","content":"Hi"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY


async def asked(port: int, requests: int) -> float:
    """Return the processor seconds of a number of requests over one connection, per request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.process_time()
    for _ in range(requests):
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
        await reader.readexactly(int(length))
    seconds = time.process_time() - began
    writer.close()
    return seconds / requests


class Plain(uvicorn.Config):
    """A configuration with uvicorn's own protocol, whatever is asked for."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **{**settings, "http": HttpToolsProtocol})  # type: ignore[arg-type]


async def measured(pairs: int, requests: int) -> Table:
    """Return the medians of both, and of the difference of each pair."""
    async with AsyncExitStack() as stack:
        ports = []
        for is_plain in (True, False):
            engine = ScriptedEngine(["Hello."] * (pairs + 1) * requests, model="scripted")
            with mock.patch.object(uvicorn, "Config", Plain if is_plain else uvicorn.Config):
                served = listening(create_app(engine, Registry()), shutdown_timeout=0)
                ports.append(await stack.enter_async_context(served))
        for port in ports:
            await asked(port, requests)
        runs = []
        for number in range(pairs):
            order = (0, 1) if number % 2 else (1, 0)
            found = {which: await asked(ports[which], requests) for which in order}
            runs.append((found[0], found[1]))
    plain, bounded = (median(each) * 1e6 for each in zip(*runs, strict=True))
    more = median((b - a) / a for a, b in runs)
    difference = median(b - a for a, b in runs) * 1e6
    columns = ("without bounds [µs]", "with them [µs]", "median difference", "[µs]")
    row = (f"{plain:.0f}", f"{bounded:.0f}", f"{more:+.2%}", f"{difference:+.1f}")
    return Table.of(columns, [row], f"{pairs} pairs of {requests} requests")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--requests", type=int, default=300)
    add_option(parser)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        table = runner.run(measured(given.pairs, given.requests))
    print(table.markdown())
    tell(given.tables, [table])
