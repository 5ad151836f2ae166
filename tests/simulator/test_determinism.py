"""The same run is the same run: in another process too, with other hashes of strings."""

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest

from caesura.simulator.engine import simulate
from caesura.simulator.policy import POLICIES
from caesura.simulator.session import Workload
from tests.simulator.simulated import crowd, machine, plain, session, workload

PROGRAM = """
import sys
from tests.simulator.test_determinism import digest
for name in sys.argv[1:]:
    print(name, digest(name, 5))
"""
NAMES = ("caesura", "stock", "stock-offload", "stock-offload-ordered", "swap", "infercept", "lamps")


def quadruplets(seed: int) -> Workload:
    """Sessions of which four come at once and end at once, so that somebody may go first."""
    rng = random.Random(seed)
    sessions = []
    for index in range(100):
        if not index % 4:
            given, decoded, seconds = rng.randint(20, 90), rng.randint(2, 9), rng.choice((0.3, 3.0))
        segments = [(given, decoded, seconds)] * (index // 4 % 3) + [(given, decoded)]
        sessions.append(session(f"{index:03d}", *segments, arrival=index // 4 * 0.2))
    return workload(*sessions)


def digest(name: str, seed: int, block_tokens: int = 16) -> str:
    """Name all that two runs have brought."""
    small = machine(blocks=960 // block_tokens, host_blocks=40, block_tokens=block_tokens)
    runs = [
        plain(simulate(work, small, POLICIES[name], records=True))
        for work in (crowd(seed), quadruplets(seed))
    ]
    return hashlib.sha256(json.dumps(runs).encode()).hexdigest()


def in_another_process(hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *NAMES],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.split(" ")[0] in NAMES]


@pytest.mark.slow
def test_runs_are_the_same_in_every_process() -> None:
    one, other = in_another_process("1"), in_another_process("2")
    assert [line.split(" ")[0] for line in one] == list(NAMES)
    assert one == other


@pytest.mark.parametrize("name", ["caesura", "stock-offload"])
def test_runs_are_the_same_twice_and_with_other_sessions_are_not(name: str) -> None:
    assert digest(name, 5) == digest(name, 5) != digest(name, 6)


@pytest.mark.parametrize("name", ["caesura", "stock-offload"])
def test_runs_in_larger_blocks_are_the_same_twice(name: str) -> None:
    assert digest(name, 5, block_tokens=32) == digest(name, 5, block_tokens=32)
