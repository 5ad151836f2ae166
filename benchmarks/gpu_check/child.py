"""A check, or a part of one, in a process of its own: an engine that fails ends nothing else."""

import argparse
import asyncio
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.gpu_check.finding import Finding
from benchmarks.gpu_check.sizes import SCALES
from benchmarks.gpu_check.turn import Turn


def main() -> None:
    """Run the check that the command line names; write what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check")
    parser.add_argument("--part", default="")
    parser.add_argument("--scale", choices=SCALES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    check = import_module(f"benchmarks.gpu_check.checks.{args.check}").check
    part = {"part": args.part} if args.part else {}
    began = time.perf_counter()
    found: Finding = asyncio.run(check(SCALES[args.scale], Turn(args.out), **part))
    replace(found, seconds=time.perf_counter() - began).save(args.out.with_suffix(".json"))


if __name__ == "__main__":
    main()
