"""Reading an application from a TOML or YAML file, with its rows, ensembles and routings."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from caesura.planning.application.application import Application, ApplicationError, Model, Task
from caesura.planning.application.check import Fault, checked
from caesura.planning.application.source import (
    ApplicationTable,
    ModelTable,
    Source,
    TaskTable,
    read_source,
    read_table,
    table_at,
    unknown,
)

PROMPT = "prompt"
"""The field that holds a line of a text file."""

Row = Mapping[str, object]


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the rows of a `.jsonl` file, or the prompts of a `.txt` file, a line each.

    Empty lines are skipped. Raises `ApplicationError` with the file and its line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ApplicationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ApplicationError(f"{path}: is not UTF-8 text") from None
    if path.suffix not in (".txt", ".jsonl"):
        raise ApplicationError(
            f"{path}: prompts come from a .jsonl file (an object with fields per line) or a .txt"
            f" file (a prompt per line), got {path.suffix or path.name!r}"
        )
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise ApplicationError(f"{path}: holds no rows: write one per line")
    if path.suffix == ".txt":
        return tuple({PROMPT: line.strip()} for _, line in numbered)
    return tuple(_row(path, number, line) for number, line in numbered)


def _row(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ApplicationError(
            f"{path}, line {number}: not valid JSON: {error.msg} (column {error.colno})"
        ) from None
    if not isinstance(row, dict):
        raise ApplicationError(
            f"{path}, line {number}: a row must be an object with fields, got {line.strip():.60}"
        )
    return row


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


SECTIONS = ("application", "models", "tasks")
BUNDLED = "caesura-tiny"


def read_application(path: Path) -> Application:
    """Return the application of a `.toml`, `.yaml` or `.yml` file, checked.

    Paths in the file are relative to its directory. Raises `ApplicationError`, whose message names
    the file, the line, what was given, and what is allowed.
    """
    source = read_source(path)
    for key in source.values:
        if key not in SECTIONS:
            raise source.error((key,), unknown("table", key, SECTIONS))
    about = read_table(source, ("application",), ApplicationTable)
    models = tuple(_models(source))
    tables = {
        name: read_table(source, ("tasks", name), TaskTable)
        for name in table_at(source, ("tasks",))
    }
    tasks = tuple(_tasks(source, tables, [model.name for model in models]))
    try:
        return checked(Application(about.name, models, tasks, about.seed, about.devices))
    except Fault as fault:
        raise _with_line(source, fault) from None


def _with_line(source: Source, fault: Fault) -> ApplicationError:
    """Return the fault as an error of the file; a task of a group stands in the group's table."""
    place = fault.place
    if len(place) > 1 and place[0] == "tasks":
        table = place[1].partition("@")[0]
        given = table_at(source, ("tasks", table))
        keys = {"model": ("model", "models", "route"), "template": ("template", "template_file")}
        place = ("tasks", table)
        if len(fault.place) > 2:
            key = fault.place[2]
            place = (*place, next((each for each in keys.get(key, (key,)) if each in given), key))
    return source.error(place, fault.message)


def _models(source: Source) -> Iterator[Model]:
    names = table_at(source, ("models",))
    if not names:
        raise source.error(("models",), "there are no models: add a table [models.NAME]")
    for name in names:
        place = ("models", name)
        table = read_table(source, place, ModelTable)
        yield Model(
            name,
            _model_path(source, name, table.path),
            tuple(table.arguments),
            tuple(sorted(set(table.tensor_parallel))),
            table.max_replicas,
            _beside(source, table.lengths),
            {size: _beside(source, spec) for size, spec in table.machines.items()},
            _config(source, name, table.config),
        )


def _config(source: Source, name: str, given: str) -> str:
    path = source.path.parent / Path(given).expanduser()
    if given and not path.is_file():
        raise source.error(("models", name, "config"), f"there is no file {path}: correct the path")
    return str(path.resolve()) if given else ""


def _beside(source: Source, spec: str) -> str:
    """Return a spec (`FILE` or `KIND:FILE`) with the whole path of a file beside the source's."""
    kind, colon, rest = spec.rpartition(":")
    path = source.path.parent / Path(rest).expanduser()
    return f"{kind}{colon}{path.resolve()}" if rest and path.exists() else spec


def _model_path(source: Source, name: str, given: str) -> str:
    """Return a directory beside the file, or what was given: a name on the Hugging Face Hub."""
    if not given:
        return str(files("caesura").joinpath("models", BUNDLED))
    directory = source.path.parent / Path(given).expanduser()
    if directory.is_dir():
        return str(directory.resolve())
    if given.startswith((".", "/", "~")):
        raise source.error(
            ("models", name, "path"),
            f"there is no directory {directory}: correct the path, or make the model first, where"
            " a comment in the file says how",
        )
    return given


def _tasks(source: Source, tables: Mapping[str, TaskTable], models: list[str]) -> Iterator[Task]:
    parts = {name: _parts(source, name, table, models) for name, table in tables.items()}
    members = {name: [f"{name}@{each}" for each in group] for name, group in parts.items()}
    members = {name: group if group else [name] for name, group in members.items()}
    single = {each: [each] for group in members.values() for each in group}
    for name, table in tables.items():
        needs: list[str] = []
        for need in table.needs:
            if need not in members and need not in single:
                message = unknown("task", need, [*members, *sorted(set(single) - set(members))])
                raise source.error(("tasks", name, "needs"), message)
            needs += members.get(need) or single[need]
        task = _task(source, name, table, tuple(dict.fromkeys(needs)))
        if table.route:
            yield from routing(task, table.route)
        elif table.models:
            yield from ensemble(task, table.models)
        else:
            yield task


def _parts(source: Source, name: str, table: TaskTable, models: list[str]) -> list[str]:
    """Return the models of a group, or none for a task of one model."""
    place = ("tasks", name)
    given = [key for key in ("model", "models", "route") if getattr(table, key)]
    if len(given) != 1:
        raise source.error(
            place, f"give one of 'model', 'models' and 'route', got {' and '.join(given) or 'none'}"
        )
    if table.route and abs(sum(table.route.values()) - 1) > 1e-6:
        raise source.error(
            (*place, "route"), f"the shares must add up to 1, got {sum(table.route.values()):g}"
        )
    if len(set(table.models)) < len(table.models):
        raise source.error((*place, "models"), f"a model is named twice in {table.models}")
    parts = table.models or list(table.route)
    for part in parts or [table.model]:
        if part not in models:
            raise source.error((*place, given[0]), unknown("model", part, models))
    return parts


def _task(source: Source, name: str, table: TaskTable, needs: tuple[str, ...]) -> Task:
    place = ("tasks", name)
    if not table.prompts and not needs:
        raise source.error(place, "has no rows: name a file in 'prompts', or a task in 'needs'")
    rows: tuple[Row, ...] = ()
    if table.prompts:
        try:
            rows = read_rows(source.path.parent / Path(table.prompts).expanduser())
        except ApplicationError as error:
            raise source.error((*place, "prompts"), str(error)) from None
    return Task(
        name=name,
        model=table.model,
        template=_template(source, name, table),
        rows=rows,
        needs=needs,
        loop=table.loop,
        samples=table.samples,
        max_tokens=table.max_tokens,
        temperature=table.temperature,
        system=table.system,
        asks=tuple(table.asks),
        tools=tuple(table.tools),
    )


def _template(source: Source, name: str, table: TaskTable) -> str:
    if table.template and table.template_file:
        raise source.error(
            ("tasks", name, "template_file"),
            f"leave out 'template' or 'template_file', got {table.template_file!r} as well",
        )
    if not table.template_file:
        return table.template or f"{{{{ {PROMPT} }}}}"
    path = source.path.parent / Path(table.template_file).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise source.error(
            ("tasks", name, "template_file"), f"{path} cannot be read: {error}"
        ) from None
