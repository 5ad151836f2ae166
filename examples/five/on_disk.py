"""A conversation that lasts: `python examples/five/on_disk.py "My name is Ada."`, and once more."""

import asyncio
import sys
from typing import Any

from caesura import Agent


async def main(prompt: str, model: Any = None, store: str = "sessions.sqlite") -> str:
    async with Agent(model).session(id="ada", store=store) as session:
        return (await session.run(prompt)).text


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
