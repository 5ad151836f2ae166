"""The requests of an application: numbers, who needs whom, and the messages of each."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.check import checked
from caesura.planning.application.templates import (
    ITEM,
    OUTPUTS,
    PREVIOUS,
    PromptError,
    Template,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a task.

    `key` is its name in results, the same in every run: `task/row`, `task/row/sample` or
    `task/row/sample/item`. `prompt_tokens` are the tokens of its prompt without the outputs of the
    requests in `needs`, which it holds as well. It decodes at most `max_tokens`. `asks` are models
    that it may call as tools. `row`, `sample` and `item` are its numbers, counted from 0.
    """

    key: str
    task: str
    model: str
    prompt_tokens: int
    max_tokens: int
    needs: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    row: int = 0
    sample: int = 0
    item: int = 0


def asked_by(requests: Iterable[Request]) -> Mapping[str, frozenset[str]]:
    """Return by model the models that its requests may call as tools."""
    found: dict[str, set[str]] = {}
    for request in requests:
        if request.asks:
            found.setdefault(request.model, set()).update(request.asks)
    return {model: frozenset(asked) for model, asked in found.items()}


def with_asked(models: Iterable[str], asked: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the models with those that they may call as tools, and those that these may call."""
    found: set[str] = set()
    new = set(models)
    while new:
        found |= new
        new = {each for model in new for each in asked.get(model, ())} - found
    return frozenset(found)


CountTokens = Callable[[str], int]
"""How many tokens a text has."""

CHARACTERS_PER_TOKEN = 4
"""A common rule of thumb for English text, used where no tokenizer is at hand."""


def estimate_tokens(text: str) -> int:
    """Return the tokens of a text by its characters, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def _estimates(model: Model) -> CountTokens:
    return estimate_tokens


class Requests:
    """The requests of an application, in an order in which each stands behind its needs.

    `all` are the requests: their keys are the same for the same application in every process. A
    task's request of a row exists if its routing takes the row, and if of each group of tasks that
    it needs at least one has a request of the row.
    """

    def __init__(
        self, application: Application, counters: Callable[[Model], CountTokens] = _estimates
    ) -> None:
        """`counters` gives each model's counter of tokens; by default characters are counted."""
        self.application = checked(application)
        self._tasks = {task.name: task for task in self.application.tasks}
        self._templates = {name: Template(task.template) for name, task in self._tasks.items()}
        self._counters = {model.name: counters(model) for model in self.application.models}
        self._rows: dict[str, set[int]] = {}
        for task in self.application.tasks:
            self._rows[task.name] = self._rows_of(task)
        self.all = tuple(
            self._request(task, row, sample, item)
            for task in self.application.tasks
            for row in sorted(self._rows[task.name])
            for sample in range(task.samples)
            for item in range(_items(task, row))
        )

    def messages(self, request: Request, outputs: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the chat messages of a request.

        `outputs` are texts by the key of their request, at least for all that the request needs.
        Raises `PromptError` if the template cannot be filled in with them.
        """
        task = self._tasks[request.task]
        text = self._templates[task.name].render(self._values(task, request, outputs))
        system = [{"role": "system", "content": task.system}] if task.system else []
        return [*system, {"role": "user", "content": text}]

    def text(self, request: Request) -> str:
        """Return what is known of a request's prompt before the run: all but the outputs in it."""
        task = self._tasks[request.task]
        try:
            messages = self.messages(request, dict.fromkeys(request.needs, ""))
        except PromptError:
            # The template reads its outputs, say as JSON, so that empty ones do not fit it.
            return task.system + task.template
        return "\n".join(message["content"] for message in messages)

    def _rows_of(self, task: Task) -> set[int]:
        found = {row for row in range(len(task.rows)) if self._routed(task, row)}
        groups: dict[str, set[int]] = {}
        for need in task.needs:
            groups.setdefault(self._tasks[need].group, set()).update(self._rows[need])
        for rows in groups.values():
            found &= rows
        return found

    def _routed(self, task: Task, row: int) -> bool:
        """Return whether the row's hash falls into the task's part of its routing."""
        name = f"{self.application.seed}/{task.group}/{row}"
        drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / 2**48
        return task.route_from <= drawn < task.route_to

    def _request(self, task: Task, row: int, sample: int, item: int) -> Request:
        before = (_key(task, row, sample, item - 1),) if item else ()
        outer = [
            key
            for need in task.needs
            if row in self._rows[need]
            for key in _last_keys(self._tasks[need], row)
        ]
        request = Request(
            _key(task, row, sample, item),
            task.name,
            task.model,
            0,
            task.max_tokens,
            (*before, *outer),
            task.asks,
            row,
            sample,
            item,
        )
        return replace(request, prompt_tokens=self._counters[task.model](self.text(request)))

    def _values(
        self, task: Task, request: Request, outputs: Mapping[str, str]
    ) -> dict[str, object]:
        values: dict[str, object] = dict(task.rows[request.row])
        values[OUTPUTS] = self._outputs(task, request.row, outputs)
        if task.loop:
            values[ITEM] = _list(task, request.row)[request.item]
            last = _key(task, request.row, request.sample, request.item - 1)
            values[PREVIOUS] = outputs[last] if request.item else ""
        return values

    def _outputs(self, task: Task, row: int, outputs: Mapping[str, str]) -> dict[str, object]:
        """Return what `outputs` holds in a template: by task, and by group.

        A task's output is a text, or a list of texts with several samples. An ensemble's are a
        mapping by model, and a routing's is that of the task which took the row.
        """
        found: dict[str, object] = {}
        for need in task.needs:
            if row not in self._rows[need]:
                continue
            done = self._tasks[need]
            texts = [outputs[key] for key in _last_keys(done, row)]
            value: object = texts if done.samples > 1 else texts[0]
            found[need] = value
            if done.group != need and done.routed:
                found[done.group] = value
            elif done.group != need:
                group = found.setdefault(done.group, {})
                assert isinstance(group, dict)
                group[done.model] = value
        return found


def _list(task: Task, row: int) -> list[object]:
    items = task.rows[row][task.loop]
    assert isinstance(items, list)
    return items


def _items(task: Task, row: int) -> int:
    return len(_list(task, row)) if task.loop else 1


def _key(task: Task, row: int, sample: int, item: int) -> str:
    if task.loop:
        return f"{task.name}/{row}/{sample}/{item}"
    return f"{task.name}/{row}/{sample}" if task.samples > 1 else f"{task.name}/{row}"


def _last_keys(task: Task, row: int) -> list[str]:
    """Return the keys of a row's outputs: one per sample, and of a chain its last."""
    last = _items(task, row) - 1
    return [_key(task, row, sample, last) for sample in range(task.samples)]
