"""The example of calls in the background."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "22_not_waiting.py"


def test_the_example_reads_each_result_when_it_comes() -> None:
    run = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=True
    )
    waiting, background = run.stdout.split("lookups in the background:")
    assert "goes on" not in waiting and background.count("goes on behind") == 3
    for told in (waiting, background):
        assert "It is sunny in Rome, Oslo, Lima." in told
    # The slowest lookup was asked for first: it comes first where it is waited for.
    assert waiting.index("Rome is sunny") < waiting.index("Lima is sunny")
    assert background.index("Oslo is sunny") > background.rindex("goes on behind")
