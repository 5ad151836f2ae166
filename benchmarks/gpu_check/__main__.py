"""Check Caesura on a GPU: exactness, copies beside compute, sleep, load against stock vLLM.

One report is written (Markdown and JSON). `python -m benchmarks.evidence --only gpu-check` runs
them too, and keeps the tables for docs/study/evidence.md. Nothing is fetched: the models have
random weights and are made here. On a machine without a GPU the same checks run in small, which
tests their code, measures nothing, and keeps no tables.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.evidence.tables import add_option, tell
from benchmarks.gpu_check.checks import CHECKS
from benchmarks.gpu_check.finding import Finding
from benchmarks.gpu_check.report import markdown, tables
from benchmarks.gpu_check.runner import Runner
from benchmarks.gpu_check.sizes import DEVICE, SCALES, SMALL
from benchmarks.handling.model import benchmark_model

NO_VLLM = (
    "vLLM is not installed for this Python: install a wheel of it with"
    " `pip install --no-index --find-links DIR vllm`, or name another Python with"
    " `make gpu-check GPU_PYTHON=...`"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path(".cache/gpu-check"), help="folder of report and logs")
    add("--minutes", type=float, default=25, help="the time for all checks")
    only = f"of {', '.join(CHECKS)}; the report keeps what an earlier run found of the others"
    add("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=only)
    add_option(parser)
    add("--scale", choices=SCALES, help="default: device with a GPU, else small")
    args = parser.parse_args(arguments)
    if args.minutes <= 0:
        parser.error(f"--minutes must be above 0, got {args.minutes:g}")
    return args


def has_gpu() -> bool:
    """Return whether PyTorch sees a GPU."""
    import torch

    return torch.cuda.is_available()


def main(arguments: Sequence[str]) -> int:
    """Run the checks; return 1 if one failed."""
    args = parse(arguments)
    console = Console(stderr=True)
    if find_spec("vllm") is None:
        console.print(NO_VLLM)
        return 2
    scale = SCALES[args.scale] if args.scale else DEVICE if has_gpu() else SMALL
    if not scale.on_device:
        console.print("in small, as on a CPU: this tests the checks and measures nothing")
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = {name: CHECKS[name] for name in CHECKS if not args.only or name in args.only}
    findings = earlier(args.out, scale.name) if args.only else {}
    left = list(chosen)

    with console.status("") as status:

        def told(name: str, found: Finding) -> None:
            findings[name] = found
            console.print(f"{found.status}: {CHECKS[name].title}. {found.summary}", markup=False)
            left.remove(name)
            status.update(f"{CHECKS[left[0]].title} ..." if left else "")
            write(args.out, scale.name, findings)

        status.update("making models ...")
        for model in {scale.exact_model, scale.model}:
            benchmark_model(model)  # before the checks, since several may want the same one
        status.update(f"{CHECKS[next(iter(chosen))].title} ...")
        try:
            runner = Runner(args.out, scale.name, args.minutes * 60, side_by_side=scale.on_device)
            runner.run(chosen, told)
        except KeyboardInterrupt:
            console.print("interrupted: the report holds what was checked so far")
        else:
            if scale.on_device:
                titles = {name: check.title for name, check in CHECKS.items()}
                tell(args.tables, tables(findings, titles))
    print(args.out / "report.md")
    return int(any(found.status == "failed" for found in findings.values()))


def earlier(folder: Path, scale: str) -> dict[str, Finding]:
    """Return what an earlier run found, so that checks can run in several goes."""
    try:
        data = json.loads((folder / "report.json").read_text())
    except (OSError, ValueError):
        return {}
    if data.get("scale") != scale:
        return {}
    return {name: Finding.of(found) for name, found in data["checks"].items() if name in CHECKS}


def write(folder: Path, scale: str, findings: dict[str, Finding]) -> None:
    titles = {name: check.title for name, check in CHECKS.items()}
    (folder / "report.md").write_text(markdown(findings, titles))
    data = {"scale": scale, "checks": {name: asdict(found) for name, found in findings.items()}}
    (folder / "report.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
