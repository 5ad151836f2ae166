"""A server that a test kills: `python killed_server.py DIRECTORY WHEN TOOL`.

WHEN says when it kills itself: `before` or `after` the side effect of the tool, or `never`.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from conftest import MODEL, LoggingEngine

from caesura.runtime.journal.store import SqliteJournal
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.responses.store import SqliteResponses
from caesura.runtime.testing import calls, say
from caesura.runtime.testing.script import call
from caesura.tools.people import People
from caesura.tools.registry import Registry
from caesura.tools.tool import tool

DIRECTORY, WHEN, TOOL = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
SCRIPT = [calls(call(TOOL, euros=5), text="I pay."), say("It is done, as far as I know.")]


def pay_into(name: str) -> str:
    while not (DIRECTORY / "go").exists():  # the client has the response's id then
        time.sleep(0.005)
    if WHEN == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with (DIRECTORY / name).open("a") as file:
        file.write("paid\n")
    if WHEN == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


@tool
def pay(euros: int) -> str:
    """Pay, which must not happen twice."""
    return pay_into("paid")


@tool(safe_to_repeat=True)
def look(euros: int) -> str:
    """Look, as often as one likes."""
    return pay_into("looked")


async def main() -> None:
    people = People(DIRECTORY / "people.sqlite")
    app = create_app(
        LoggingEngine(SCRIPT, model=MODEL),
        Registry([pay, look]),
        parts=ServerParts(
            people=people,
            store=SqliteResponses(DIRECTORY / "responses.sqlite"),
            journal=SqliteJournal(DIRECTORY / "journal.sqlite"),
        ),
    )
    async with listening(app) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
