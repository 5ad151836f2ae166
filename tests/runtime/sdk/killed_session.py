"""An agent that a test kills: `python killed_session.py DIRECTORY WHEN TOOL`.

WHEN says when it kills itself: `decoding` the answer, `before` or `after` the side effect of the
tool, `waiting` for a person, or `never`. It waits until the store has what it has done.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from caesura import Agent, ScriptedEngine
from caesura.runtime.events import TextDelta
from caesura.runtime.journal.store import SqliteJournal
from caesura.runtime.sdk.sessions import APPLICATION
from caesura.runtime.testing import Item, calls, say
from caesura.runtime.testing.script import call
from caesura.tools.people import Pending
from caesura.tools.tool import tool

DIRECTORY, WHEN, TOOL = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stored(what: str) -> None:
    """Return when an entry of the session's holds this."""
    store = SqliteJournal(DIRECTORY / "sessions.sqlite", application=APPLICATION)
    while not any(what in body for body in store.load("u")):
        time.sleep(0.01)


def pay_into(name: str) -> str:
    stored('["call"')
    if WHEN == "before":
        die()
    with (DIRECTORY / name).open("a") as file:
        file.write("paid\n")
    if WHEN == "after":
        die()
    return "paid"


@tool
def pay(euros: int) -> str:
    """Pay, which must not happen twice."""
    return pay_into("paid")


@tool(when_unknown="fail")
def transfer(euros: int) -> str:
    """Pay, which must not happen twice, and nobody is asked."""
    return pay_into("transferred")


@tool(safe_to_repeat=True)
def look(euros: int) -> str:
    """Look, as often as one likes."""
    return pay_into("looked")


@tool(approval=True)
def refund(euros: int) -> str:
    """Pay back, if a person approves."""
    return pay_into("refunded")


TOOLS = [pay, transfer, look, refund]
SCRIPT: list[Item] = [
    calls(call(TOOL, euros=5), text="I pay."),
    say("It is done, as far as I know."),
]


async def main() -> None:
    (DIRECTORY / "caesura.toml").write_text(f'[data]\ndirectory = "{DIRECTORY}"\n')
    config = DIRECTORY / "caesura.toml"
    agent = Agent(ScriptedEngine(SCRIPT), TOOLS, config=config, on_approval=wait)
    async with agent.session(id="u", store=DIRECTORY / "sessions.sqlite") as session:
        said = ""
        async for event in session.stream("Pay."):
            if isinstance(event, TextDelta):
                said += event.text
            if WHEN == "decoding" and said.startswith("I pay.It is done"):
                await asyncio.to_thread(stored, '["result"')
                die()


async def wait(item: Pending) -> None:
    if WHEN == "waiting":
        await asyncio.to_thread(stored, '["outcome"')
        print(item.id, flush=True)
        die()


if __name__ == "__main__":
    asyncio.run(main())
