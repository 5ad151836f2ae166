"""The test processes: one pytest per scheduler, all at once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from compare import Run
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
TEST_TIMEOUT_S = 600
RUN_TIMEOUT_S = 3600


def environment(root: Path) -> dict[str, str]:
    """Return the environment of a test process: offline, and free of the user's pytest options."""
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    path = [str(root), str(HERE.parent)]
    if importlib.util.find_spec("torchvision") is None:
        path.append(str(HERE / "stubs"))
    path += filter(None, [env.get("PYTHONPATH")])
    # The processes share the machine, and nothing here computes much.
    env.setdefault("OMP_NUM_THREADS", "1")
    return env | {
        "PYTHONPATH": os.pathsep.join(path),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",  # stock means stock, whatever is installed next to it
        "VLLM_CACHE_ROOT": str(root.parent / "vllm-cache"),
    }


def log_file(root: Path, name: str) -> Path:
    """Where pytest's own output goes."""
    return root / f"{name}.log"


def run_all(
    root: Path, names: Sequence[str], tests: Sequence[str], expression: str | None
) -> list[Run]:
    """Run the tests with each scheduler and show how far they are."""
    started = time.monotonic()
    seconds: dict[str, float] = {}
    columns = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn())
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        processes |= {name: _start(root, name, tests, expression) for name in names}
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
            tasks = {name: progress.add_task(name, total=None) for name in names}
            while len(seconds) < len(names):
                time.sleep(0.5)
                elapsed = time.monotonic() - started
                if elapsed > RUN_TIMEOUT_S:
                    break
                for name, process in processes.items():
                    if name not in seconds and process.poll() is not None:
                        seconds[name] = elapsed
                    run = Run.load(name, _outcomes_file(root, name))
                    progress.update(tasks[name], total=run.collected or None, completed=run.tests)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    runs = [Run.load(name, _outcomes_file(root, name)) for name in names]
    for run in runs:
        run.seconds = seconds.get(run.scheduler, RUN_TIMEOUT_S)
    return runs


def _outcomes_file(root: Path, name: str) -> Path:
    return root / f"{name}.jsonl"


def _start(
    root: Path, name: str, tests: Sequence[str], expression: str | None
) -> subprocess.Popen[bytes]:
    _outcomes_file(root, name).unlink(missing_ok=True)
    # vLLM's conftest.py needs packages that we lack; plugin.py gives what the tests use of it.
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--noconftest"]
    command += ["-p", "no:cacheprovider", "-p", "upstream.plugin", "--schedulers", name]
    command += ["--outcomes", str(_outcomes_file(root, name)), f"--timeout={TEST_TIMEOUT_S}"]
    command += ["-q", "-W", "ignore", "--color=no", "--continue-on-collection-errors"]
    command += ["-k", expression] if expression else []
    with log_file(root, name).open("wb") as log:
        return subprocess.Popen(
            [*command, *tests],
            cwd=root,
            env=environment(root),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
