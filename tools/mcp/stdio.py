"""The stdio transport: one JSON message a line.

The library's own transport reads lines of any length, and fails at a byte that is not UTF-8.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from caesura.tools.mcp.child import Child
from caesura.tools.mcp.lines import Endless, Pace, lines, read_message


@asynccontextmanager
async def transport(
    child: Child, max_bytes: int, ended: asyncio.Event
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of messages over a child's pipes; `ended` is set when they close.

    Leaving the context ends the child. max_bytes: limit for one message; a request with a longer
    answer gets an error.
    """
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.ensure_future(_reading(child, incoming, max_bytes, ended)),
        asyncio.ensure_future(_writing(child, outgoing, incoming, ended)),
    ]
    try:
        yield read, write
    finally:
        write.close()
        await child.end()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (incoming, read, outgoing):
            stream.close()


async def _reading(
    child: Child,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    max_bytes: int,
    ended: asyncio.Event,
) -> None:
    assert child.process.stdout is not None
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            pace = Pace()
            async for line, cut in lines(child.process.stdout, max_bytes):
                await pace.keep()
                if (message := read_message(line, cut, max_bytes)) is not None:
                    await incoming.send(message)
        except Endless:
            child.end_now("it sent a message without end")
        finally:
            await child.settle()
            ended.set()


async def _writing(
    child: Child,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ended: asyncio.Event,
) -> None:
    assert child.process.stdin is not None
    try:
        async with outgoing:
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                child.process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await child.process.stdin.drain()
    except (ConnectionError, RuntimeError):
        incoming.close()  # no request can be sent any more; the waiting ones fail
        ended.set()
