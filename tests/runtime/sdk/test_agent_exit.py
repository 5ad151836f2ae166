"""What a process that uses `run_sync` leaves behind: nothing."""

import subprocess
import sys

SCRIPT = """
import asyncio
import atexit
from caesura.runtime.sdk import engines
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, say

class Engine(ScriptedEngine):
    async def close(self):
        await asyncio.to_thread(print, "closed")  # as an engine does whose stop blocks

async def start(model):
    atexit.register(print, "killed")  # as vLLM does with its processes
    asyncio.create_task(kept())
    return Engine([say("Hi.")])

async def kept():
    try:
        await asyncio.sleep(600)
    finally:
        print("cleared up")  # as an MCP server's task ends the server

engines.ENGINES._launch = start
print(Agent("tiny").run_sync("Hi."))
"""


def test_the_engine_of_run_sync_is_closed_when_the_process_ends():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["Hi.", "closed", "cleared up", "killed"]
