"""The example of two servers over one store, run as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "12_two_servers.py"

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_a_killed_servers_answer_goes_on_at_another_one(database: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=570,
        env={**os.environ, "CAESURA_STORE": database},
    )
    assert ran.returncode == 0, ran.stderr
    assert "characters are those of an undisturbed run" in ran.stdout
