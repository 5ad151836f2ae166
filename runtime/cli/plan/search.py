"""Reading an application and searching for its plan, with a progress bar."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from caesura.planning.application.application import Application
from caesura.planning.application.file import read_application
from caesura.planning.application.requests import Requests, estimate_tokens
from caesura.planning.costs.estimate import make_costs
from caesura.planning.search.planner import CostModel, Planner
from caesura.planning.search.strategies import Choice, Effort
from caesura.planning.stage_times import Progress as Done
from caesura.runtime.cli.plan.options import PlanOptions
from caesura.runtime.errors import UsageError
from caesura.runtime.token_counter import token_counter

MakeCosts = Callable[[Requests, Path | None], CostModel]
"""Returns what the models of an application cost, with what a file says was measured."""


def measured_costs(
    requests: Requests, path: Path | None, sleep_level: int | None = None
) -> CostModel:
    """Return the costs of an application's models; raises `UsageError`.

    With a `sleep_level` evicted engines sleep, as far as the times of that were measured.
    """
    return make_costs(requests.application, requests, path=path, sleep_level=sleep_level)


@dataclass(frozen=True, slots=True)
class Search:
    """An application, how many devices it may use, and what makes its plans."""

    application: Application
    requests: Requests
    devices: int
    planner: Planner


def prepare(path: Path, how: PlanOptions, costs: MakeCosts = measured_costs) -> Search:
    """Read an application and the costs of its models; raises `UsageError`."""
    application = read_application(path)
    devices = how.devices or application.devices
    if not devices:
        raise UsageError(
            f"{path} does not say how many devices there are: give --devices, or `devices` in"
            " [application]"
        )
    application = replace(application, devices=devices)  # costs depend on it
    requests = Requests(application, lambda model: token_counter(model.path) or estimate_tokens)
    planner = Planner(requests, costs(requests, how.costs), draws=how.draws, seed=how.seed)
    return Search(application, requests, devices, planner)


def find_plan(
    search: Search, how: PlanOptions, console: Console, done: Done | None = None
) -> Choice:
    """Return the plan of the chosen strategy; a bar on `console` shows how far the search is.

    The plan is one for what is not `done` yet.
    """
    columns = (
        TextColumn("searching"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    effort = Effort()
    if how.search_seconds is not None:
        effort = Effort(seconds=how.search_seconds, clock=time.monotonic)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def watch(part: float, seconds: float) -> None:
            bar.update(task, completed=part, description=f"best so far: {seconds:.1f} s")

        return search.planner.plan(
            search.devices, strategy=how.strategy, progress=done, effort=effort, watch=watch
        )
