"""Tasks that several models share: ensembles, and routings by shares of the rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from caesura.planning.application.application import Task


def ensemble(task: Task, models: Iterable[str]) -> tuple[Task, ...]:
    """Return one task per model, named `task@model`, each of which does all rows."""
    return tuple(replace(task, name=f"{task.name}@{model}", model=model) for model in models)


def routing(task: Task, shares: Mapping[str, float]) -> tuple[Task, ...]:
    """Return one task per model, named `task@model`, each with its share of the rows.

    The shares are positive and add up to 1.
    """
    tasks = []
    begin = 0.0
    models = list(shares)
    for model in models:
        end = 1.0 if model == models[-1] else begin + shares[model]
        tasks.append(
            replace(task, name=f"{task.name}@{model}", model=model, route_from=begin, route_to=end)
        )
        begin = end
    return tuple(tasks)
