"""Sessions on disk: one that goes on later, branches of it, and an approval across processes.

    python examples/17_sessions.py

Run it again, and the session goes on where it was. It needs no model: a script plays its part. With
`Agent("Qwen/Qwen3-8B", ...)` or `Agent("http://host:8000/v1", ...)` the rest is the same.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

from caesura import Agent, Sampling, ScriptedEngine, Session, tool
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import Message
from caesura.tools.people import Callback, Pending

STORE = "sessions.sqlite"


@tool(approval=True)
def refund(order: int) -> str:
    """Pay an order back.

    Args:
        order: its number.
    """
    return f"order {order} is paid back"


def model(messages: Sequence[Message], tools: object) -> Item:
    """Play the model."""
    last = messages[-1]
    if last["role"] == "tool":
        return say("It is done.")
    if "back" in last["content"]:
        return call("refund", order=7)
    return say(f"That was your message number {sum(m['role'] == 'user' for m in messages)}.")


def opened(name: str, on_approval: Callback | None = None) -> Session:
    """Return the session of that name, new or as it was left."""
    agent = Agent(ScriptedEngine(model), [refund], on_approval=on_approval)
    return agent.session(id=name, store=STORE)


async def talk() -> None:
    """Go on with a conversation, and try two continuations of it."""
    async with opened("user-7") as session:
        print((await session.run("Hello.")).text)
        for branch in session.fork(2, sampling=Sampling(temperature=1.0)):
            async with branch:
                print(branch.id, (await branch.run("And now?")).text)


async def ask() -> None:
    """Begin a run that waits for a person, and end while it waits."""
    asked = asyncio.Event()

    async def leave(item: Pending) -> None:
        print("asked:", item.tool, item.arguments)
        asked.set()

    async with opened("order-7", leave) as session:
        run = asyncio.create_task(session.run("Pay order 7 back."))
        await asked.wait()
        run.cancel()
        await asyncio.wait([run])


async def approve() -> None:
    """Approve what another process has asked for, and go on with its run."""
    async with opened("order-7") as session:
        for item in session.pending:
            print("approved:", item.tool, item.arguments)
            await session.approve(item.id)
        print((await session.run()).text)


STEPS = {"talk": talk, "ask": ask, "approve": approve}


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(STEPS[sys.argv[1]]())
    else:
        for step in STEPS:  # each in a process of its own
            subprocess.run([sys.executable, __file__, step], check=True)
