"""Programs of users, each in a process of its own as a user starts it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_first_program_of_the_readme_runs_as_a_file(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path / "agent.py"
    file.write_text(blocks[0])
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "7 lamps cost 168.\n"), ran.stderr


@pytest.mark.slow
def test_a_program_without_a_main_guard_runs_from_stdin_and_ends_without_a_word() -> None:
    program = (
        "from caesura import Agent\nprint(Agent(tools=['calculator']).run_sync('What is 6*7?'))"
    )
    ran = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "The answer is 42.\n"), ran.stderr
    assert ran.stderr == ""


IN_ALL_LOOPS = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from caesura import Agent
from caesura.runtime import launch

starts, start = [], launch.start_engine


async def counted(model=None):
    starts.append(model)
    return await start(model)


async def ask(number):
    async with aclosing(agent.stream("What is 6*5?")) as events:
        await anext(events)  # a client that goes away
    return (await agent.run(f"What is 6*{number}?")).text


def asked(number):
    return agent.run_sync(f"What is 6*{number}?").text


if __name__ == "__main__":
    launch.start_engine = counted
    agent = Agent(tools=["calculator"])
    print(asked(7), asyncio.run(ask(7)), asyncio.run(ask(8)))
    with ThreadPoolExecutor(3) as threads:
        print(*threads.map(lambda number: asyncio.run(ask(number)), (7, 8, 9)))
        print(*threads.map(asked, (7, 8, 9)))
    print(len(starts))
"""


@pytest.mark.slow
def test_one_engine_serves_all_loops_and_threads_of_a_program(tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    file.write_text(IN_ALL_LOOPS)
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    three = " ".join(f"The answer is {number}." for number in (42, 48, 54))
    first = "The answer is 42. The answer is 42. The answer is 48."
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert ran.stdout.splitlines() == [first, three, three, "1"]
