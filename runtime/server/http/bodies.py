"""Bodies of requests, parsed beside the event loop if they are large."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

MAX_INLINE_BODY_BYTES = 64 * 2**10
"""The largest body that the event loop parses itself; a thread parses larger ones."""
_PARSING = ThreadPoolExecutor(2, "caesura-parsing")


async def parsed(parse_body: Callable[[bytes], T], body: bytes) -> T:
    """Return the request in a body, parsed in a thread if it is large; raise `ApiError`."""
    if len(body) <= MAX_INLINE_BODY_BYTES:
        return parse_body(body)
    return await asyncio.get_running_loop().run_in_executor(_PARSING, parse_body, body)
