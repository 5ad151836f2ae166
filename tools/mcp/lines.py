"""Reads a server's output as messages of bounded length and rate, and without exceptions."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator

import mcp_types
from mcp.shared.message import SessionMessage

LOG = logging.getLogger(__name__)

MESSAGES_PER_SECOND = 2000
ENDLESS = 8
"""A line longer than this many times the limit is taken for an endless one."""
_READ_BYTES = 65536
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")')


class Endless(Exception):
    """The server writes a message that does not end."""


class Pace:
    """Limits reading to MESSAGES_PER_SECOND; a faster server blocks on its full pipe."""

    def __init__(self) -> None:
        self._since = 0.0
        self._messages = 0

    async def keep(self) -> None:
        """Wait before another message where the rate limit requires it."""
        loop = asyncio.get_running_loop()
        self._messages += 1
        if self._messages <= MESSAGES_PER_SECOND:
            return
        await asyncio.sleep(max(0.0, self._since + 1.0 - loop.time()))
        self._since, self._messages = loop.time(), 1


async def lines(stream: asyncio.StreamReader, max_bytes: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is longer than `max_bytes` and so only begins here.

    Raises Endless at a line of ENDLESS times that length.
    """
    line, size = bytearray(), 0
    while piece := await stream.read(_READ_BYTES):
        *whole, rest = piece.split(b"\n")
        for part in whole:
            line += part[: max_bytes - len(line)]
            yield bytes(line), size + len(part) > max_bytes
            line, size = bytearray(), 0
        line += rest[: max_bytes - len(line)]
        size += len(rest)
        if size > ENDLESS * max_bytes:
            raise Endless
    if line:
        yield bytes(line), size > max_bytes


def read_message(line: bytes, cut: bool, max_bytes: int) -> SessionMessage | None:
    """Return a line as a message; an unreadable one becomes an error for the request it names."""
    reason = f"a message of more than {max_bytes} bytes"
    if not cut:
        try:
            text = line.decode("utf-8", "replace")
            return SessionMessage(
                mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False)
            )
        except ValueError:
            reason = "a message that is not JSON-RPC"
    LOG.debug("%s: %r", reason, line[:200])
    found = _ID.search(line[:4096])
    if found is None or b'"method"' in line[:4096]:
        return None
    number = found[1].decode("utf-8", "replace")
    error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=f"the server sent {reason}")
    answered = int(number) if number.isdecimal() else number[1:-1]
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=answered, error=error))
