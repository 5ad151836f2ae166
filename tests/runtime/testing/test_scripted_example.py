"""The example of how users test their agents runs as it is shown."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "03_scripted_test.py"


def test_the_example_passes():
    done = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr.startswith("the tool stock failed")  # a bug of the tool is told its author
    assert done.stderr.endswith("KeyError: 'unicorn'\n")
    assert done.stdout.count("passed: ") == 4
