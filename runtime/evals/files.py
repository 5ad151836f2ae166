"""Cases in files: YAML, JSON, or JSON lines."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from caesura.distribution import install
from caesura.runtime.errors import UsageError
from caesura.runtime.evals.case import Case, Check, unique
from caesura.runtime.evals.checks import Calls, Contains, Equals, Judge, Matches, Valid, Within
from caesura.runtime.run.limits import Prices
from caesura.tools.config.functions import imported
from caesura.tools.services import SetupError, unknown_key

KEYS = ("name", "prompt", "expected", "checks", "metadata")


def cases(path: Path | str, judge: Judge | None = None) -> list[Case]:
    """Return the cases of a file.

    A YAML or JSON file is a list of cases, or holds such a list under `cases`, and under `checks`
    what all of them must pass. A file of JSON lines (`.jsonl`) has a case in each line. A case has
    a `prompt`, and may have a `name`, `expected`, `checks` and `metadata`. A check is named as in
    `contains: "168"` or `calls: [price]`. Checks by `judge: rubric` ask the model of `judge`.

    Raises `UsageError`, which names the file and the case, for what is wrong.
    """
    path = Path(path)
    read, shared = _read(path)
    reader = _Reader(path, judge)
    common = reader.checks(shared, str(path))
    made = []
    for number, each in enumerate(read, 1):
        case = reader.case(each, number)
        made.append(replace(case, checks=(*case.checks, *common)))
    try:
        return unique(made)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _read(path: Path) -> tuple[list[Any], Any]:
    """Return the cases of a file, and the checks that all of them have."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text") from None
    if path.suffix == ".jsonl":
        return [_json(path, line, n) for n, line in enumerate(text.splitlines(), 1) if line], ()
    data = _yaml(path, text) if path.suffix in (".yaml", ".yml") else _json(path, text)
    shared: Any = ()
    if isinstance(data, dict):
        for key in data:
            if key not in ("cases", "checks"):
                raise UsageError(f"{path}: {unknown_key(str(key), ['cases', 'checks'])}")
        shared = data.get("checks", ())
        data = data.get("cases")
    if not isinstance(data, list):
        raise UsageError(f"{path}: cases must be a list, got {data!r:.80}")
    return data, shared


def _json(path: Path, text: str, line: int = 0) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        where = f", line {line}" if line else ""
        hint = "" if path.suffix in (".json", ".jsonl") else "; name it .yaml, .json or .jsonl"
        raise UsageError(f"{path}{where}: is not valid JSON: {error}{hint}") from None


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise UsageError(f"{path}: YAML needs PyYAML: {install('planning')}") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None


class _Reader:
    """Reads the cases and checks of one file."""

    def __init__(self, path: Path, judge: Judge | None) -> None:
        self._path = path
        self._judge = judge
        self._makers: dict[str, Callable[[Any], Check]] = {
            "equals": lambda value: Equals(value),
            "expected": lambda value: Equals() if value in (None, True) else Equals(value),
            "contains": lambda value: _made(Contains, value, "texts"),
            "absent": lambda value: Contains(*_list(value), absent=True),
            "matches": lambda value: Matches(value),
            "schema": lambda value: Valid(value),
            "calls": lambda value: _made(Calls, value, "calls"),
            "no_calls": lambda value: Calls(only=True),
            "within": _within,
            "judge": self._judged,
            "function": self._function,
        }

    def case(self, given: Any, number: int) -> Case:
        where = f"{self._path}: case {number}"
        if not isinstance(given, dict):
            raise UsageError(f"{where} must have a prompt, got {given!r:.80}")
        for key in given:
            if key not in KEYS:
                raise UsageError(f"{where}: {unknown_key(str(key), list(KEYS))}")
        prompt, metadata = given.get("prompt"), given.get("metadata") or {}
        if not isinstance(prompt, str | list) or not prompt:
            raise UsageError(f"{where}: prompt must be a text, got {prompt!r:.80}")
        if not isinstance(metadata, dict):
            raise UsageError(f"{where}: metadata must be an object, got {metadata!r:.80}")
        checks = self.checks(given.get("checks") or (), where)
        return Case(prompt, given.get("expected"), str(given.get("name", "")), checks, metadata)

    def checks(self, given: Any, where: str) -> list[Check]:
        if isinstance(given, str | dict):
            given = [given]
        if not isinstance(given, list | tuple):
            raise UsageError(f"{where}: checks must be a list, got {given!r:.80}")
        return [check for each in given for check in self._check(each, where)]

    def _check(self, given: Any, where: str) -> list[Check]:
        """Return the checks of an item: a name, or a mapping of names to what they take."""
        named = {given: None} if isinstance(given, str) else given
        if not isinstance(named, Mapping):
            raise UsageError(f"{where}: a check is such as contains: text, got {given!r:.80}")
        made = []
        for name, value in named.items():
            if name not in self._makers:
                raise UsageError(f"{where}: checks: {unknown_key(str(name), list(self._makers))}")
            try:
                made.append(self._makers[name](value))
            except (UsageError, SetupError, TypeError) as error:
                raise UsageError(f"{where}: {name}: {error}") from None
        return made

    def _judged(self, rubric: Any) -> Check:
        if not isinstance(rubric, str):
            raise UsageError(f"a rubric is a text, got {rubric!r:.80}")
        if self._judge is None:
            raise UsageError(
                f"the rubric {rubric!r:.80} needs a model: give --judge MODEL, or"
                " cases(path, judge=Judge('', model))"
            )
        return self._judge.by(rubric)

    def _function(self, reference: Any) -> Check:
        found: Check = imported(str(reference), self._path.parent.absolute())
        if not callable(found):
            raise UsageError(f"{reference!r} is no function, got {found!r:.80}")
        return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _made(kind: Callable[..., Check], value: Any, key: str) -> Check:
    """Make a check of one value, of a list, or of a mapping with options beside `key`."""
    if isinstance(value, dict) and key in value:
        options = {name: each for name, each in value.items() if name != key}
        return kind(*_list(value[key]), **options)
    return kind(*_list(value)) if value is not None else kind()


def _within(value: Any) -> Check:
    if not isinstance(value, dict):
        raise UsageError(f"within takes bounds such as {{seconds: 5}}, got {value!r:.80}")
    prices = value.get("prices")
    given = {**value, "prices": Prices(**prices)} if isinstance(prices, dict) else value
    return Within(**given)
