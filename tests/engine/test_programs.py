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
