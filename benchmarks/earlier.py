"""What a version costs beside an earlier one: `caesura serve` of two checkouts, in turns.

    git worktree add /tmp/earlier REVISION
    python -m benchmarks.earlier /tmp/earlier

Each server has its own engine with the bundled model, and everything on that it has by default,
for one user without keys: also its own supervision, journal and bounds. Each round asks all servers
the same questions, each of which needs a tool, in changing order. A second server of the earlier
version gives the noise. Throughput below 1, time to first token above 1 and CPU time above 1 are
costs. CPU time is that of the server, its engine and all their other processes.
"""

import argparse
import asyncio
import itertools
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.door import free_port, server
from benchmarks.journal import one_round
from benchmarks.pairs import ratio

HERE = Path(__file__).parents[1]
MODEL = "caesura-tiny"
WARM_UP = 2
WHAT = ("throughput", "first token", "cpu")


@dataclass(frozen=True)
class Running:
    """A server, and its process."""

    url: str
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Return the processor time of all its processes until now."""
        times = (each.cpu_times() for each in (self.process, *self.process.children(True)))
        return sum(each.user + each.system for each in times)


@contextmanager
def running(checkout: Path, folder: Path) -> Iterator[Running]:
    """Serve with the code of a checkout; keep its files in a folder."""
    folder.mkdir()
    kept = ("--trace", str(folder / "traces.sqlite"), "--responses", str(folder / "kept.sqlite"))
    ours = ("serve", "--port", "{port}", "--served-model-name", MODEL, "--no-calibrate")
    command = ["caesura", *ours, *kept]
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "XDG_STATE_HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    known = set(psutil.Process().children())
    with server(command, free_port(), environment) as url:
        (process,) = set(psutil.Process().children()) - known
        yield Running(url, process)


async def one(of: Running, questions: list[str]) -> dict[str, float]:
    """Ask all questions at once; return tokens/s, seconds to the first token, CPU ms of each."""
    before = of.cpu_seconds()
    seen = await one_round(of.url, MODEL, questions)
    return {**seen, "cpu": 1e3 * (of.cpu_seconds() - before) / len(questions)}


def measure(earlier: Path, rounds: int, concurrency: int, console: Console) -> Table:
    """Run the rounds; return a table of ratios to the earlier version."""
    checkouts = {"earlier": earlier, "now": HERE, "earlier again": earlier}
    rng = random.Random(0)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {
            name: stack.enter_context(running(checkout, folder / name.replace(" ", "-")))
            for name, checkout in checkouts.items()
        }
        orders = itertools.cycle(itertools.permutations(servers))
        for index in track(range(-WARM_UP, rounds), "rounds", console=console):
            pairs = [(rng.randrange(100, 1000), rng.randrange(10, 100)) for _ in range(concurrency)]
            questions = [f"What is {a} * {b}?" for a, b in pairs]
            for name in next(orders):
                result = asyncio.run(one(servers[name], questions))
                if index >= 0:
                    seen[name].append(result)
    table = Table("", "earlier", "now / earlier", "earlier again / earlier (noise)")
    for what in WHAT:
        values = {name: [each[what] for each in results] for name, results in seen.items()}
        middle = sorted(values["earlier"])[rounds // 2]
        told = [str(ratio(values[name], values["earlier"])) for name in ("now", "earlier again")]
        table.add_row(what, f"{middle:.4g}", *told)
    return table


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--rounds", type=int, default=36, help="answers are compared by round")
    parser.add_argument("--concurrency", type=int, default=32, help="questions of a round")
    asked = parser.parse_args()
    if not (asked.earlier / "src" / "caesura").is_dir():
        parser.error(f"{asked.earlier} is no checkout of Caesura: it has no src/caesura")
    console = Console(width=110)
    console.print(measure(asked.earlier, asked.rounds, asked.concurrency, console))
    console.print(
        f"{asked.rounds} rounds of {asked.concurrency} responses; tokens/s, s, CPU ms each"
    )


if __name__ == "__main__":
    main()
