"""Options as dataclasses: Typer sees an option for each field of a command's dataclasses."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def filled(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its dataclass parameters.

    A field is declared like a parameter of a Typer command, by an `Annotated` type and a default.
    The names of all fields and other parameters of a command must differ.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group: Any = parameter.annotation
        if is_dataclass(group):
            groups[parameter.name] = group
            parameters += _options_of(group)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @wraps(command)
    def fill(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    # Typer reads the parameters from the signature, and their types from the annotations.
    fill.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    fill.__annotations__ = {each.name: each.annotation for each in parameters}
    return fill


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(group)
    ]
