"""Checking an application, from a file or from Python, and putting its tasks in order."""

import graphlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from caesura.planning.application.application import Application, ApplicationError, Task
from caesura.planning.application.source import Place, unknown
from caesura.planning.application.templates import RESERVED, Template

_TASK_NAME = re.compile(r"[\w.-]+(@[\w.:-]+)?")


class Fault(ApplicationError):
    """What is wrong with an application; `place` are the keys of its file that lead there."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"[{'.'.join(place[:2])}] {message}")
        self.place = place
        self.message = message


def checked(application: Application) -> Application:
    """Return the application with its tasks in the order of their needs; raises `Fault`.

    A task that needs others and has no rows of its own takes the rows of the first of them.
    """
    for fault in _unknown_names(application):
        raise fault
    tasks = {task.name: task for task in application.tasks}
    ordered: dict[str, Task] = {}
    for name in _order(tasks):
        task = tasks[name]
        if not task.rows and task.needs:
            task = replace(task, rows=ordered[task.needs[0]].rows)
        for fault in (*_wrong_rows(task, ordered), *_wrong_template(task, ordered)):
            raise fault
        ordered[name] = task
    return replace(application, tasks=tuple(ordered.values()))


def _unknown_names(application: Application) -> Iterator[Fault]:
    models = [model.name for model in application.models]
    counted = Counter(task.name for task in application.tasks)
    if not counted:
        yield Fault(("tasks",), f"the application {application.name!r} has no tasks: add one")
    for task in application.tasks:
        at = ("tasks", task.name)
        if counted[task.name] > 1:
            yield Fault(at, f"the name {task.name!r} is given to two tasks: rename one")
        if not _TASK_NAME.fullmatch(task.name):
            yield Fault(
                at, f"a task's name holds letters, digits, '_', '.' and '-', got {task.name!r}"
            )
        if task.model not in models:
            yield Fault((*at, "model"), unknown("model", task.model, models))
        for name in task.asks:
            if name not in models:
                yield Fault((*at, "asks"), unknown("model", name, models))
        for name in task.needs:
            if name not in counted:
                yield Fault((*at, "needs"), unknown("task", name, counted))


def _order(tasks: Mapping[str, Task]) -> list[str]:
    """Return the names so that each stands behind those that it needs, else as they are given."""
    sorter = graphlib.TopologicalSorter({name: task.needs for name, task in tasks.items()})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        # Each of the cycle's tasks is needed by the one behind it, and the first is also the last.
        cycle = list(reversed(error.args[1]))
        raise Fault(
            ("tasks", cycle[0], "needs"),
            f"tasks need each other in a circle: {' needs '.join(cycle)}; remove one of the needs",
        ) from None
    places = {name: place for place, name in enumerate(tasks)}
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=places.__getitem__)
        order += ready
        sorter.done(*ready)
    return order


def _wrong_rows(task: Task, before: Mapping[str, Task]) -> Iterator[Fault]:
    at = ("tasks", task.name)
    if not task.rows:
        yield Fault(at, "has no rows: name a file in 'prompts', or a task in 'needs'")
    if not 0 <= task.route_from < task.route_to <= 1:
        yield Fault(
            (*at, "route"),
            f"a route is a part of 0 to 1, got {task.route_from:g} to {task.route_to:g}",
        )
    if task.samples < 1 or task.max_tokens < 1:
        yield Fault(
            at,
            f"samples and max_tokens must be at least 1, got {task.samples} and {task.max_tokens}",
        )
    for need in task.needs:
        if len(before[need].rows) != len(task.rows):
            yield Fault(
                (*at, "prompts"),
                f"has {len(task.rows)} rows, but {need!r}, which it needs, has"
                f" {len(before[need].rows)}: outputs are passed on row by row",
            )
    for number, row in enumerate(task.rows, 1):
        for name in RESERVED:
            if name in row:
                yield Fault(
                    (*at, "prompts"),
                    f"row {number} has a field {name!r}, which templates use for something else:"
                    " rename it",
                )
        items = row.get(task.loop) if task.loop else [0]
        if not isinstance(items, list) or not items:
            yield Fault(
                (*at, "loop"),
                f"row {number} has no list of items in its field {task.loop!r}: {items!r:.60}",
            )


def _wrong_template(task: Task, before: Mapping[str, Task]) -> Iterator[Fault]:
    at = ("tasks", task.name, "template")
    try:
        template = Template(task.template)
    except ApplicationError as error:
        yield Fault(at, str(error))
        return
    for number, row in enumerate(task.rows, 1):
        for field in sorted(template.fields - set(row)):
            yield Fault(
                at,
                f"the template uses {field!r}, which row {number} does not have; its fields:"
                f" {', '.join(map(str, row)) or 'none'}",
            )
    known = [*task.needs, *dict.fromkeys(before[need].group for need in task.needs)]
    for name in sorted(template.outputs - set(known)):
        yield Fault(
            at, f"outputs.{name}: {unknown('task', name, known)}; add it to 'needs' of the task"
        )
