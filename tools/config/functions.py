"""Python functions that `caesura.toml` names as tools: `[tools.price]` with `function`.

Their modules are also looked for beside the configuration and in the working directory.
"""

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from caesura.tools.services import SetupError, ToolSettings
from caesura.tools.tool import Tool, tool

_REFERENCE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*(\.\w+)*)")
FUNCTION = "function"
"""The key whose table in `[tools.NAME]` is of a function."""


class FunctionSettings(ToolSettings):
    """`[tools.NAME]` of a Python function; a field that is left out keeps the function's own."""

    function: str = Field(description="the function, as module:attribute")
    description: str | None = Field(None, description="what the model reads; default: docstring")
    safe_to_repeat: bool | None = Field(None, description="calling twice is as good as once")
    when_unknown: Literal["ask", "fail"] | None = Field(
        None, description="what follows a call that a crash has cut"
    )
    expected_seconds: float | None = Field(None, gt=0, description="how long a call usually takes")
    background: bool | None = Field(None, description="the model goes on while a call runs")


_OWN = ("description", "safe_to_repeat", "when_unknown", "expected_seconds", "background")


def function_tool(name: str, settings: FunctionSettings, folder: Path | None) -> Tool:
    """Return the tool of a function; `folder` is that of the configuration, if there is one.

    Raises `SetupError` for an object that cannot be imported, or cannot become a tool.
    """
    found = imported(settings.function, folder)
    try:
        made = found if isinstance(found, Tool) else tool(found)
        said = {each: getattr(settings, each) for each in _OWN}
        given = {each: value for each, value in said.items() if value is not None}
        return replace(made, name=name, **given)
    except (TypeError, ValueError) as error:
        hint = ""
        if hasattr(found, "as_tool"):
            hint = f"; for an agent, write [agents.{name}] agent = {settings.function!r}"
        raise SetupError(
            f"[tools.{name}]: {settings.function!r} cannot become a tool: {error}{hint}"
        ) from error


def imported(reference: str, folder: Path | None) -> Any:
    """Return the object that `module:attribute` names.

    The module may be in the folder, in the working directory, or installed. Raises `SetupError`.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise SetupError(
            f'{reference!r} names nothing in Python: write "module:attribute", such as "shop:price"'
        )
    places = list(dict.fromkeys(str(each) for each in (folder, Path.cwd()) if each is not None))
    with _first(places):
        module = _module(match["module"], places)
    found: Any = module
    for part in match["attribute"].split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            where = getattr(module, "__file__", None) or "built in"
            raise SetupError(
                f"{reference!r}: the module {match['module']!r} ({where}) has no"
                f" {match['attribute']!r}{hint}"
            ) from None
    return found


@contextmanager
def _first(places: Sequence[str]) -> Iterator[None]:
    """Let modules be found in the places first; afterwards behind all others.

    What a module imports later, within its functions, is found too.
    """
    before = list(sys.path)
    sys.path[:] = [*places, *(each for each in before if each not in places)]
    try:
        yield
    finally:
        late = [each for each in places if each not in before]
        sys.path[:] = [*before, *late]


def _module(name: str, places: Sequence[str]) -> Any:
    importlib.invalidate_caches()  # the file may be younger than what Python knows of its folder
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SetupError(
                f"there is no module {name!r} in {' or '.join(places)}, and none is installed:"
                " correct the name, or put its file there"
            ) from None
        raise SetupError(_failed(name, error)) from error
    except (Exception, SystemExit) as error:
        raise SetupError(_failed(name, error)) from error


def _failed(name: str, error: BaseException) -> str:
    """Return what is wrong with a module, and in which line of it."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    where = f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
    told = " ".join(str(error).split())
    return f"the module {name!r} cannot be imported: {type(error).__name__}: {told}{where}"
