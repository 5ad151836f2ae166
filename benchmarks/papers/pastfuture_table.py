"""Past-Future's Table 1 as data: its rows, the admission that each stands for, and our runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.pastfuture_watch import INTERVAL, as_record, watching
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Cell
from caesura.simulator.workload.papers import DISTRIBUTIONS

HERE = Path(__file__).parent
CODE = (HERE / "pastfuture_watch.py", HERE / "pastfuture_table.py")

REQUESTS = 3000
CAPACITY = 120_000
LONGEST = 4096
"""Of the artifact's simulation: requests, tokens of KV cache, and the preset maximum output."""

WATCH = "benchmarks.papers.pastfuture_watch"

OPTIMUM = "optimum"
PAST_FUTURE = ("past-future 3 %", "past-future 5 %", "past-future 10 %")


@dataclass(frozen=True, slots=True)
class Figure:
    """Decode steps of all 3,000 requests, and shares in percent (Table 1)."""

    steps: float
    memory: float
    future: float
    evicted: float


ADMISSIONS = {
    OPTIMUM: f"{WATCH}.Optimum",
    PAST_FUTURE[0]: "past-future,reserve=0.03",
    PAST_FUTURE[1]: "past-future,reserve=0.05",
    PAST_FUTURE[2]: "past-future,reserve=0.1",
    "aggressive 99 %": "aggressive,watermark=0.99",
    "aggressive 95 %": "aggressive,watermark=0.95",
    "aggressive 90 %": "aggressive,watermark=0.9",
    "conservative": "conservative",
    "overcommit 150 %": "conservative,overcommit=1.5",
    "overcommit 125 %": "conservative,overcommit=1.25",
}

PAPER = {
    "d1": {
        OPTIMUM: Figure(294250, 94.87, 98.89, 0),
        PAST_FUTURE[0]: Figure(296710, 93.61, 97.47, 6.86),
        PAST_FUTURE[1]: Figure(301680, 91.87, 95.73, 3.37),
        PAST_FUTURE[2]: Figure(320720, 87.09, 91.51, 1.58),
        "aggressive 99 %": Figure(284160, 98.41, 103.12, 93.74),
        "aggressive 95 %": Figure(290980, 96.10, 101.21, 24.08),
        "aggressive 90 %": Figure(302900, 92.46, 97.87, 10.76),
        "conservative": Figure(485650, 57.75, 60.79, 0),
        "overcommit 150 %": Figure(320530, 87.34, 90.79, 17.23),
    },
    "d2": {
        OPTIMUM: Figure(653120, 92.57, 98.29, 0),
        PAST_FUTURE[0]: Figure(654500, 92.16, 97.21, 7.42),
        PAST_FUTURE[1]: Figure(669770, 90.07, 95.82, 4.39),
        PAST_FUTURE[2]: Figure(705920, 85.26, 90.99, 1.54),
        "aggressive 99 %": Figure(616230, 97.83, 103.68, 97.72),
        "aggressive 95 %": Figure(628410, 95.86, 101.81, 26.19),
        "aggressive 90 %": Figure(654190, 92.37, 99.12, 13.88),
        "conservative": Figure(842470, 71.71, 75.45, 0),
        "overcommit 125 %": Figure(665970, 90.64, 94.68, 84.34),
    },
    "d3": {
        OPTIMUM: Figure(230690, 96.60, 98.60, 0),
        PAST_FUTURE[0]: Figure(239260, 94.50, 96.51, 2.59),
        PAST_FUTURE[1]: Figure(241650, 92.64, 94.62, 0.87),
        PAST_FUTURE[2]: Figure(263670, 87.80, 89.87, 0.00),
        "aggressive 99 %": Figure(227250, 98.13, 100.20, 34.30),
        "aggressive 95 %": Figure(234540, 95.07, 97.16, 3.23),
        "aggressive 90 %": Figure(247130, 90.29, 92.33, 0.17),
        "conservative": Figure(374250, 59.73, 61.59, 0),
        "overcommit 150 %": Figure(246870, 90.45, 92.54, 19.09),
    },
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: `requests`, the first `skip` of them not counted, and how long they are.

    `part` shortens prompts, outputs, the memory and the steps between admissions alike, so that
    as many requests run together as in the paper.
    """

    requests: int
    skip: int
    part: float


FULL = Size(REQUESTS, 100, 1.0)
HALF = Size(200, 50, 0.5)
QUICK = Size(150, 50, 0.25)

CLIENTS = 48
"""More than ever run together, so that a request always waits for admission, as in the artifact."""


def cell_of(name: str, method: str, size: Size, seed: int, every_step: bool = False) -> Cell:
    """Return the run of a row; `every_step`: admission is decided in each, as when we serve."""
    interval = 1 if every_step else max(1, round(INTERVAL * size.part))
    inner = ADMISSIONS[method]
    if inner.startswith("past-future"):
        inner += f",longest={round(LONGEST * size.part)}"
    admission = f"{WATCH}.Watched:inner={inner},interval={interval},skip={size.skip}"
    policy = Policy(
        f"{method}{', every step' if every_step else ''}",
        settings={
            "handling": "discard",
            "ranking": "fcfs",
            "backfill": False,
            "admission": admission,
        },
        chunk_tokens=18_000,
        prefix_caching=False,
        host=False,
    )
    options = f"clients={CLIENTS},requests={size.requests},tokens={size.part},most={LONGEST}"
    machine = f"llama-2-7b-a100-80g:kv={round(CAPACITY * size.part)}"
    return Cell(f"pastfuture-{name}:{options}", None, machine, policy, CLIENTS, seed, 1.0)


def table_run(cell: Cell, progress: Callable[[float], None]) -> RunResult:
    """Make a run, with a record of what the table lists."""
    from caesura.simulator.engine import simulate
    from caesura.simulator.latency.machines import make_machine
    from caesura.simulator.workload.names import make_workload

    workload = make_workload(cell.workload, cell.rate, cell.seconds, cell.seed)
    lengths = {session.key: session.decode_tokens for session in workload.sessions}
    with watching(lengths) as log:
        run = simulate(workload, make_machine(cell.machine), cell.policy, progress=progress)
    run.records.append(as_record(log))
    return run


def figure_of(name: str, run: RunResult) -> Figure:
    """Return what a run comes to, its steps as for all requests of the table in full length.

    Steps are tokens over the mean batch, and a request's worth of decoded tokens stands for one
    that has finished: those that run when counting begins or ends are counted in part.
    """
    log = next(record for record in run.records if record["event"] == "table")
    low, high = DISTRIBUTIONS[name].decoded
    mean_full = (low + high) / 2
    mean = sum(each.decode_tokens for each in run.sessions) / len(run.sessions)
    return Figure(
        steps=REQUESTS * mean_full * log["steps"] / log["batched"],
        memory=100 * log["memory"] / log["steps"],
        future=100 * log["future"] / max(1, log["decisions"]),
        evicted=100 * log["evicted"] * mean / log["batched"],
    )
