"""The choices of one request, decoded side by side: `n` sessions over one prompt."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

Delta = dict[str, Any]
Numbered = tuple[int, Delta]
"""A delta, and the number of the choice that it belongs to."""


async def side_by_side(
    choices: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[Numbered, None]:
    """Yield the deltas of all choices as they come, each with its choice's number.

    The others begin when the first has its first delta, since its prompt is then in the prefix
    cache. An error of one choice ends all of them, and is raised.
    """
    deltas: asyncio.Queue[Numbered | BaseException | None] = asyncio.Queue()
    begun = asyncio.Event()

    async def decode(number: int) -> None:
        if number:
            await begun.wait()
        try:
            async with aclosing(choices[number]) as stream:
                async for delta in stream:
                    begun.set()
                    deltas.put_nowait((number, delta))
            deltas.put_nowait(None)
        except BaseException as error:
            deltas.put_nowait(error)
            raise
        finally:
            begun.set()

    tasks = [asyncio.create_task(decode(number)) for number in range(len(choices))]
    try:
        left = len(tasks)
        while left:
            told = await deltas.get()
            if isinstance(told, BaseException):
                raise told
            if told is None:
                left -= 1
            else:
                yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
