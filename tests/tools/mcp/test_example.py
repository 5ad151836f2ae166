"""The example of an agent with an MCP server runs as it is shown."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "07_mcp_agent.py"


@pytest.mark.slow
def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "There were 7 lamps; now 4 left."
