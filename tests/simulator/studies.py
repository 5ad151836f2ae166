"""Made-up runs and studies: what a simulation would give, without one."""

import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path

from caesura.simulator.policy import POLICIES
from caesura.simulator.results import TIMELINE, RunResult, SessionResult, Totals
from caesura.simulator.study.conduct import Made, Outcome
from caesura.simulator.study.figures import Figures, figures
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.pool import Task
from caesura.simulator.study.store import write_run
from caesura.simulator.study.summary import MEASURES
from caesura.simulator.study.work import Progress

STUDY = Study(
    workload="mix",
    policies=(POLICIES["stock"], POLICIES["caesura"]),
    rates=(1.0, 2.0),
    seeds=(0, 1, 2),
    machines=("gptj-6b-a100-40g",),
    seconds=60.0,
    baseline="stock",
)


def one_session(
    arrival: float,
    *,
    first: float = 0.0,
    ended: float = 0.0,
    tool_seconds: float = 0.0,
    decode_tokens: int = 10,
    key: str = "0",
) -> SessionResult:
    """A session of one segment; 0.0 is what has not happened."""
    return SessionResult(
        key,
        "qa",
        arrival,
        decode_tokens,
        segments=[(arrival, first, ended)],
        tool_seconds=tool_seconds,
        ended=ended,
    )


def one_run(sessions: list[SessionResult], **totals: float) -> RunResult:
    """A run of 100 s with a row every 10 s: 10 tokens decoded in the first, 20 in the next ..."""
    given: dict[str, float] = {"seconds": 100.0, "total_block_seconds": 1000.0, **totals}
    timeline: dict[str, list[float]] = {name: [1.0] * 10 for name in TIMELINE}
    timeline["at"] = [10.0 * row for row in range(1, 11)]
    timeline["decode_tokens"] = [10.0 * row for row in range(1, 11)]
    return RunResult(
        "stock", "mix", "a machine", 1.0, 0, sessions,
        Totals(**given),  # type: ignore[arg-type]
        timeline, [], {"handling": "preserve"}, wall_seconds=0.25,
    )  # fmt: skip


def make_up(cell: Cell, progress: Progress) -> RunResult:
    """A run that depends on its cell alone; the policy `caesura` halves all latencies."""
    rng = random.Random(f"{cell.rate} {cell.seed}")
    speed = 0.5 if cell.policy.name == "caesura" else 1.0
    sessions = []
    for number in range(int(cell.rate * cell.seconds)):
        arrival = number / cell.rate
        took = speed * cell.rate * rng.uniform(1.0, 2.0)
        sessions.append(
            one_session(arrival, first=arrival + took / 2, ended=arrival + took, key=f"{number}")
        )
    progress(cell.seconds)
    run = one_run(sessions, waste_preserve=100.0 * speed, steps=7, preemptions=3)
    return replace(
        run, policy=cell.policy.name, workload=cell.workload, rate=cell.rate, seed=cell.seed
    )


def make_up_noting(cell: Cell, progress: Progress) -> RunResult:
    """Leave a line in the file that the environment names."""
    with Path(os.environ["NOTED"]).open("a") as noted:
        noted.write(f"{cell}\n")
    return make_up(cell, progress)


def die_at_the_third(cell: Cell, progress: Progress) -> RunResult:
    """The process that makes the third run is gone, as if killed for its memory."""
    noted = Path(os.environ["NOTED"])
    if noted.exists() and len(noted.read_text().splitlines()) >= 2:
        os._exit(9)
    return make_up_noting(cell, progress)


def refuse_rate_two(cell: Cell, progress: Progress) -> RunResult:
    if cell.rate == 2.0:
        raise RuntimeError("no progress since 12.5 s")
    return make_up(cell, progress)


def sleep_after_the_first(cell: Cell, progress: Progress) -> RunResult:
    if (cell.policy.name, cell.rate, cell.seed) != ("stock", 1.0, 0):
        Path(os.environ["ASLEEP"]).write_text(str(os.getpid()))
        time.sleep(120)
    return make_up(cell, progress)


def make_up_traced(cell: Cell, progress: Progress) -> RunResult:
    """With what the description of a trace is made from."""
    run = make_up(cell, progress)
    run.records = [{"kind": "steps", "at": [0.0]}]
    run.settings = {
        "policy": {"engine": cell.policy.engine, "settings": {}},
        "machine": {"block_tokens": 16},
        "vllm": "0",
        "blocks": 10,
        "host_blocks": 0,
    }
    return run


def refuse_to_trace_stock(cell: Cell, progress: Progress) -> RunResult:
    if cell.policy.name == "stock":
        raise RuntimeError("no progress since 12.5 s")
    return make_up_traced(cell, progress)


def tell_environment(cell: Cell, progress: Progress) -> RunResult:
    run = make_up(cell, progress)
    run.settings = {"hash": hash("caesura"), "threads": os.environ["OMP_NUM_THREADS"]}
    return run


# -- studies that need no process ----------------------------------------------------------------

NASTY = 'caesura:<script>alert("x")</script>&|*_[red]'


def outcome_of(study: Study, **changes: dict[str, float]) -> Outcome:
    """Runs with made-up figures: those of the first policy are 1, of the second 2, and so on.

    A change is by the policy's name, with `_` for what cannot stand in a name.
    """
    made = []
    for cell in study.cells():
        value = 1.0 + study.policies.index(cell.policy) + 0.01 * cell.seed
        given = dict.fromkeys(MEASURES, value) | {"unfinished": 0, "sessions": 10}
        given |= changes.get(re.sub(r"\W", "_", cell.policy.name), {})
        task = Task(cell, Path("runs", "none"), "")
        made.append(Made(cell, Figures(**given), task))  # type: ignore[arg-type]
    return Outcome(study, tuple(made), ())


def stored(study: Study, folder: Path) -> Outcome:
    """Made-up runs that are in files."""
    made = []
    for number, cell in enumerate(study.cells()):
        run = make_up(cell, lambda at: None)
        path = folder / f"{number}.json.gz"
        write_run(path, "d", run)
        made.append(Made(cell, figures(run, 10.0, 60.0), Task(cell, path, "d")))
    return Outcome(study, tuple(made), ())
