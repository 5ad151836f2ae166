"""How far the fast simulation of stages is from the scheduler that serves.

    python -m benchmarks.planning.costs_error [--seeds N] [--engine caesura|stock]

Each row is a workload on a machine of SamuLLM's timed iterations, simulated fast and by the real
scheduler with the same step times. Errors are those of the end of the stage, and of the end of a
request on average, both relative. The table is Markdown; it ends with the mean of its rows.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.progress import track

from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.planning.whole import SERVED, real_run
from caesura.planning.application.application import Model
from caesura.planning.application.requests import Request
from caesura.planning.costs.estimate import ApplicationCosts
from caesura.planning.costs.lengths import make_lengths
from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress


@dataclass(frozen=True, slots=True)
class Case:
    """A workload of `count` requests, or chains of `chain` requests where that is above 1.

    Prompts have `prompt` tokens on average, exponentially distributed. `kv` are the tokens of the
    KV cache; 0: as many as were measured.
    """

    name: str
    model: str
    count: int
    prompt: int
    limit: int
    kv: int = 0
    replicas: int = 1
    degree: int = 1
    chain: int = 1
    needs: str = ""

    def requests(self, seed: int) -> list[Request]:
        generator = np.random.default_rng(seed)
        prompts = 1 + generator.exponential(self.prompt, self.count).astype(int)
        found = []
        for number, prompt in enumerate(np.minimum(prompts, 3000).tolist()):
            before = (f"{self.name}/{number - 1}",) if number % self.chain else ()
            other = (f"{self.needs}/{number}",) if self.needs else ()
            found.append(
                Request(
                    f"{self.name}/{number}",
                    self.name,
                    self.name,
                    prompt,
                    self.limit,
                    before + other,
                )
            )
        return found

    def placement(self) -> Placement:
        return Placement(self.name, self.replicas, self.degree)

    def as_model(self) -> Model:
        spec = f"samullm:model={self.model},tp={self.degree}" + f",kv={self.kv}" * bool(self.kv)
        return Model(
            self.name,
            self.name,
            tensor_parallel=(self.degree,),
            lengths=f"samullm:{self.model}",
            machines={self.degree: spec},
        )


CASES: dict[str, tuple[Case, ...]] = {
    "1,000 short prompts": (Case("a", "vicuna-13b-v1.5", 1000, 21, 512),),
    "the same, with limit 256, on 4 devices": (
        Case("a", "vicuna-13b-v1.5", 1000, 21, 256, replicas=4),
    ),
    "300 prompts of 1,500 tokens": (Case("a", "vicuna-13b-v1.5", 300, 1500, 256),),
    "600 short prompts, 20,000 tokens of KV": (
        Case("a", "vicuna-13b-v1.5", 600, 21, 512, kv=20_000),
    ),
    "300 long prompts, 20,000 tokens of KV": (
        Case("a", "vicuna-13b-v1.5", 300, 1500, 512, kv=20_000),
    ),
    "1,000 with 2-way tensor parallelism": (Case("a", "koala-13B-HF", 1000, 100, 512, degree=2),),
    "60 chains of 8 chunks of 2,000 tokens": (
        Case("a", "vicuna-13b-v1.5", 480, 1500, 300, chain=8),
    ),
    "500 of one model, then of another": (
        Case("a", "alpaca-13b", 500, 50, 256),
        Case("b", "chatglm3-6b", 500, 50, 256, needs="a"),
    ),
}


def errors(cases: Sequence[Case], seed: int, engine: str) -> tuple[float, ...]:
    """Return the real seconds, both errors, and the seconds that both simulations take."""
    models = [case.as_model() for case in cases]
    requests = [request for case in cases for request in case.requests(seed)]
    lengths = {model.name: make_lengths(model.lengths) for model in models}
    costs = ApplicationCosts(models, requests, lengths)
    drawn = costs.draw(seed)
    placements = [case.placement() for case in cases]
    began = time.perf_counter()
    fast = costs.known(drawn).run(placements, Progress(), to_the_end=True)
    between = time.perf_counter()
    real = costs.known(drawn, partial(real_run, engine=engine)).run(
        placements, Progress(), to_the_end=True
    )
    ended = time.perf_counter()
    ends = np.array([[fast.after.finished[key], end] for key, end in real.after.finished.items()])
    each = float(np.abs(ends[:, 0] / ends[:, 1] - 1).mean())
    return (
        real.seconds,
        fast.seconds / real.seconds - 1,
        each,
        between - began,
        ended - between,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seeds", type=int, default=3, help="draws of each workload (default 3)")
    options.add_argument(
        "--engine", choices=(SERVED, "stock"), default=SERVED, help="whose scheduler is real"
    )
    add_option(options)
    given = options.parse_args()
    lines = []
    totals = []
    for name, cases in track(CASES.items(), description="simulating"):
        rows = np.array([errors(cases, seed, given.engine) for seed in range(given.seeds)])
        real, _, each, fast_took, real_took = rows.mean(axis=0)
        end = float(np.abs(rows[:, 1]).mean())
        totals.append((end, each))
        lines.append((name, f"{real:.1f}", f"{end:.2%}", f"{each:.2%}"))
        print(f"{name}: {1000 * fast_took:.0f} ms instead of {real_took:.1f} s")
    end, each = np.array(totals).mean(axis=0)
    lines.append(("mean", "", f"{end:.2%}", f"{each:.2%}"))
    columns = ("workload", "stage [s]", "error of its end", "of a request's end")
    table = Table.of(columns, lines)
    print(table.markdown())
    tell(given.tables, [table])


if __name__ == "__main__":
    main()
