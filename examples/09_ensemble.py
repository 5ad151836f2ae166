"""An ensemble on two engines: both answer the same questions, and then one goes on from there.

    python examples/09_ensemble.py [FOLDER]

Both engines serve the bundled model; name models of your own in `application`. A plan says which
model runs when on the two devices. It is then carried out on real engines, processes of this
machine. What is in FOLDER is kept, so that an interrupted run goes on where it stood.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.file import ensemble
from caesura.planning.application.requests import Requests
from caesura.planning.costs.estimate import make_costs
from caesura.planning.run.client import ApplicationQuestions
from caesura.planning.run.conductor import Job, carry_out
from caesura.planning.run.journal import Journal
from caesura.planning.run.processes import ProcessHost
from caesura.planning.search.planner import Planner
from caesura.planning.show.tables import ends_of, ends_table, plan_table, read_run
from caesura.runtime.launch import BUNDLED_MODEL

DEVICES = 2
ENGINE = ("--max-model-len", "2048", "--dtype", "float32", "--kv-cache-memory-bytes", "268435456")
QUESTIONS = tuple({"question": f"What is {a}*{b}?"} for a, b in [(12, 7), (48, 17), (9, 31)])


def application() -> Application:
    """Return the application: each model answers, and the second one uses the first one's answer.

    A question with a tool pauses in its engine while the calculator runs.
    """
    answer = Task("answer", "", "{{ question }}", QUESTIONS, max_tokens=60, tools=("calculator",))
    triple = Task(
        "triple",
        "second",
        "What is {{ outputs.answer.first.split()[-1].rstrip('.') }}*3?",
        needs=("answer@first", "answer@second"),
        max_tokens=60,
        tools=("calculator",),
    )
    models = (Model("first", BUNDLED_MODEL, ENGINE), Model("second", BUNDLED_MODEL, ENGINE))
    return Application("ensemble", models, (*ensemble(answer, ["first", "second"]), triple))


async def main(folder: Path) -> None:
    console = Console()
    requests = Requests(application())
    planner = Planner(requests, make_costs(requests.application, requests))
    plan = planner.plan(DEVICES).plan
    console.print(plan_table(plan, planner.costs.device_bytes))

    output = folder / "answers.jsonl"
    journal = Journal(output, requests.application)
    try:
        journal.watch_results(lambda result: console.print(f"{result.key}: {result.output}"))
        questions = ApplicationQuestions(requests)
        job = Job(requests.application, requests.all, questions, planner.replan)
        await carry_out(job, plan, ProcessHost(DEVICES, folder / "logs"), journal)
    finally:
        journal.close()
    console.print(ends_table(ends_of(plan, *read_run(output))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as made:
            asyncio.run(main(Path(made)))
