"""Speculative decoding on the real engine: over any pause, it leaves greedy output as it is.

Each engine has a process of its own: n-gram speculation loads numba, and vLLM's CPU build starts no
engine in a process in which numba was loaded before.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CASES = Path(__file__).with_name("exact_drafts.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["cached", "chunked"])
def test_sessions_are_exact_with_drafts(engine: str) -> None:
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-k", engine]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(CASES)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
    )
    # pytest exits with 5 when it ran no test.
    assert ran.returncode == 0, ran.stdout
