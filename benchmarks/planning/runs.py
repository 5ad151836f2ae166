"""Planned runs against both heuristics, in turn, on real engines of this machine.

`python -m benchmarks.planning.runs FOLDER` copies the applications of `examples/applications` to
FOLDER, makes their models, measures the engines, and runs each application by each strategy, round
after round, in changing order. All is kept: the same command goes on where it stopped, and
`--minutes` ends it before a run that would take longer. Output lengths are the same in all runs of
an application, since each request has its own seed.

A run's time is that until its last output, from the moment at which the first engine begins to
load. Ratios are those of a heuristic to the planned run of its round.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.pairs import ratio
from caesura.planning.run.journal import EVENTS_SUFFIX

APPLICATIONS = ("ensemble", "routing", "chain_summary", "mixed")
STRATEGIES = ("best", "max", "min")
PLANNED = "best"
EXAMPLES = Path(__file__).parents[2] / "examples" / "applications"
PROMPTS = "*.jsonl"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an application by a strategy, in a round that counts from 1."""

    application: str
    round: int
    strategy: str

    def output(self, folder: Path) -> Path:
        return folder / "runs" / f"{self.application}-{self.round}-{self.strategy}.jsonl"


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a run, in seconds; `planned` is the mean makespan of its plan."""

    seconds: float
    planned: float
    loads: int


def main() -> None:
    options = parsed()
    ends = time.monotonic() + 60 * options.minutes
    prepare(options.folder, options.applications, options.questions, options.documents)
    for run in runs(options.applications, options.strategies, options.rounds):
        if measured_of(run, options.folder) is not None:
            continue
        left = ends - time.monotonic()
        if left < expected_seconds(run, options.folder):
            print(f"{left / 60:.1f} minutes are too few for {run}: the same command goes on")
            break
        execute(run, options.folder, left)
        print(f"{run}: {measured_of(run, options.folder)}", flush=True)
    report = "\n".join(report_lines(options))
    (options.folder / "report.md").write_text(report + "\n")
    print(report)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="keeps models, measurements and runs")
    parser.add_argument("--applications", nargs="+", default=APPLICATIONS, choices=APPLICATIONS)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6, help="end before a longer run")
    parser.add_argument("--questions", type=int, default=64, help="of ensembling and routing")
    parser.add_argument("--documents", type=int, default=24, help="of chain summaries")
    return parser.parse_args()


def prepare(folder: Path, applications: Iterable[str], questions: int, documents: int) -> None:
    """Copy the applications, make their models, and measure the engines that are not measured."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    for name in applications:
        shutil.copy(EXAMPLES / f"{name}.toml", folder)
    for name, rows in (("questions", questions), ("documents", documents)):
        kept = folder / f"{name}.jsonl"
        with (EXAMPLES / kept.name).open() as held:
            lines = list(islice(held, rows))
        if kept.exists() and kept.read_text() != "".join(lines):
            sys.exit(f"{kept} holds another number of {name}: choose another folder")
        kept.write_text("".join(lines))
    if not (folder / "models" / "large" / "lengths.json").exists():
        command("benchmarks.planning.models", str(folder / "models"))
    for name in applications:
        application, costs = str(folder / f"{name}.toml"), str(folder / "costs.json")
        command("caesura", "measure", application, "--output", costs)


def runs(applications: Iterable[str], strategies: Sequence[str], rounds: int) -> Iterator[Run]:
    """Yield the runs, those of one application together; every other round backwards."""
    for application in applications:
        for number in range(1, rounds + 1):
            for strategy in strategies if number % 2 else reversed(strategies):
                yield Run(application, number, strategy)


def execute(run: Run, folder: Path, limit_seconds: float) -> None:
    """Carry a run out from its beginning, since a continued one has no time of its own."""
    output = run.output(folder)
    for old in output.parent.glob(f"{output.name}*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    command(
        *("caesura", "run", str(folder / f"{run.application}.toml"), "--output", str(output)),
        *("--strategy", run.strategy, "--costs", str(folder / "costs.json"), "--quiet"),
        *("--gantt", str(output.with_suffix(".svg"))),
        limit_seconds=2 * limit_seconds,
    )


def command(*arguments: str, limit_seconds: float | None = None) -> None:
    """Run a module of Python; end with its status if it fails."""
    done = subprocess.run([sys.executable, "-m", *arguments], timeout=limit_seconds)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}")


def measured_of(run: Run, folder: Path) -> Measured | None:
    """Return what came of a run; None if it has not come to its end in one go."""
    output = run.output(folder)
    events = rows(output.with_name(output.name + EVENTS_SUFFIX))
    started = [row for row in events if row["event"] == "started"]
    if len(started) != 1 or events[-1]["event"] != "finished":
        return None
    results = rows(output)
    failed = [row["key"] for row in results if "error" in row]
    if failed:
        sys.exit(f"{output}: {len(failed)} requests have failed, the first: {failed[0]}")
    return Measured(
        seconds=max(row["begun"] + row["seconds"] for row in results),
        planned=started[0]["plan"]["makespan"]["mean"],
        loads=sum(row["event"] == "loaded" for row in events),
    )


def rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def expected_seconds(run: Run, folder: Path) -> float:
    """Return what the run took in another round, or what another strategy took; else 0."""
    same = [Run(run.application, number, run.strategy) for number in range(1, run.round)]
    others = [Run(run.application, run.round, each) for each in STRATEGIES]
    known = [found.seconds for each in (*same, *others) if (found := measured_of(each, folder))]
    return known[0] if known else 0.0


def report_lines(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table in Markdown: a row per application and strategy."""
    names = ["application", "strategy", "rounds", "loads", "planned", "measured"]
    names += ["planned / measured", "time / best"]
    yield f"| {' | '.join(names)} |"
    yield "| --- " * len(names) + "|"
    for application in options.applications:
        for strategy in options.strategies:
            pairs = list(pairs_of(application, strategy, options))
            if not pairs:
                continue
            own, best = zip(*pairs, strict=True)
            seconds = [each.seconds for each in own]
            error = ratio([each.planned for each in own], seconds)
            loads = "/".join(str(each.loads) for each in own)
            yield (
                f"| {application} | {strategy} | {len(own)} | {loads}"
                f" | {sum(each.planned for each in own) / len(own):.1f} s"
                f" | {sum(seconds) / len(own):.1f} s | {error}"
                f" | {ratio(seconds, [each.seconds for each in best])} |"
            )


def pairs_of(
    application: str, strategy: str, options: argparse.Namespace
) -> Iterator[tuple[Measured, Measured]]:
    """Yield a strategy's run and the planned run of the same round."""
    for number in range(1, options.rounds + 1):
        own = measured_of(Run(application, number, strategy), options.folder)
        best = measured_of(Run(application, number, PLANNED), options.folder)
        if own is not None and best is not None:
            yield own, best


if __name__ == "__main__":
    main()
