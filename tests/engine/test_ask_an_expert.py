"""The example of an agent that asks a second model, on two real engines."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "10_ask_an_expert.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_agent_answers_with_what_the_expert_said() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for product in ("816", "84", "537"):
        assert re.search(rf"calculator .* <- '.*\b{product}\b", done.stdout)
    assert len(re.findall(r"paused .* tokens kept", done.stdout)) == 3
