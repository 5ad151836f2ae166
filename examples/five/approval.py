"""A run that waits for a person, while no process waits for it.

python examples/five/approval.py ask Qwen/Qwen3-8B        # ends when a person has to decide
python examples/five/approval.py approve Qwen/Qwen3-8B    # goes on: nothing is decoded again
"""

import asyncio
import sys
from typing import Annotated, Any

from pydantic import Field

from caesura import Agent, tool


@tool(approval=True)
def refund(order: Annotated[int, Field(ge=0, le=999)]) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


async def main(what: str, model: Any = None, store: str = "refunds.sqlite", **options: Any) -> str:
    asked = asyncio.Event()

    async def leave(item: Any) -> None:
        asked.set()

    agent = Agent(model, [refund], on_approval=leave, **options)
    async with agent, agent.session(id="order-7", store=store) as session:
        if what == "approve" and not session.pending:
            return "nothing waits: ask first"
        if what == "approve":
            await session.approve(session.pending[0].id)
            return (await session.run()).text
        run = asyncio.create_task(session.run("Pay order 7 back."))
        waits = asyncio.create_task(asked.wait())
        await asyncio.wait([run, waits], return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            return f"nothing waits: {run.result()}"
        run.cancel()
        return f"waits: {session.pending[0].arguments}"


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
