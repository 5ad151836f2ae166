"""What the tools of a process share: directories, settings and their errors, clean-up at the end.

The directories are the user's own, by the XDG base directory specification. `XDG_DATA_HOME` and
`XDG_CONFIG_HOME` move them.
"""

import difflib
import importlib.util
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from caesura.distribution import install
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.schema.arguments import errors_sentence, path_text

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class SetupError(ValueError):
    """A tool cannot be set up as configured. The message says how to fix it."""


class ToolSettings(BaseModel):
    """Settings of `[tools.NAME]` that every tool has; a tool's own settings extend them.

    A field that is left out, or None, keeps the tool's own value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout_seconds: float | None = Field(None, gt=0, description="limit for one attempt")
    retries: int | None = Field(None, ge=0, le=10, description="further attempts after a failure")
    concurrency: int | None = Field(None, ge=1, description="calls at the same time")
    max_result_tokens: int | None = Field(None, ge=1, description="longer results are cut")
    breaker: int | None = Field(None, ge=1, description="failures in a row that suspend the tool")
    approval: bool = Field(False, description="a person must approve each call")


@dataclass(slots=True)
class Services:
    """What all tools of one process share.

    `data` is the directory for files that outlive a restart (corpora, caches, open questions).
    `allow_private` lets HTTP tools reach addresses that are not public.
    """

    artifacts: ArtifactStore
    data: Path
    allow_private: bool = False
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    shared: dict[str, object] = field(default_factory=dict)
    """Objects that several tools share, by name; the first tool that needs one makes it."""

    def at_end(self, close: Callable[[], Awaitable[object]]) -> None:
        """Register `close` to be called when the tools are closed."""
        self.stack.push_async_callback(close)


def require(package: str, extra: str, tool: str) -> None:
    """Raise SetupError, with the install command, unless `package` is installed."""
    if importlib.util.find_spec(package) is None:
        raise SetupError(
            f"the tool {tool!r} needs {package}, which is not installed: {install(extra)}"
        )


def settings_sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what pydantic found wrong with the settings `model`, naming the keys."""
    allowed = list(model.model_fields)
    return errors_sentence(error, lambda detail: _description(detail, allowed))


def unknown_key(key: str, allowed: list[str]) -> str:
    """Return the error text for an unknown key: the nearest key, and all allowed ones."""
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key {key!r}; {hint}allowed: {', '.join(allowed)}"


def _description(detail: ErrorDetails, allowed: list[Any]) -> str:
    place = path_text(detail["loc"])
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
        return unknown_key(place, allowed)
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{place}: {message}" if place else message


def with_variables(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with `${NAME}` and `${NAME:-default}` filled in.

    An empty variable counts as unset. Raises ValueError for an unset variable without a default.
    """

    def value(match: re.Match[str]) -> str:
        found = environment.get(match[1]) or match[2]
        if found is None:
            raise ValueError(
                f"the environment variable {match[1]} is not set; "
                f"set it, or write ${{{match[1]}:-default}}"
            )
        return found

    return _VARIABLE.sub(value, text)


def default_data() -> Path:
    """Return the directory of files that tools keep over restarts."""
    return _base("XDG_DATA_HOME", ".local/share")


def default_artifacts() -> Path:
    """Return the directory of files that tools make."""
    return default_data() / "artifacts"


def user_configuration() -> Path:
    """Return the configuration file for all projects of the user."""
    return _base("XDG_CONFIG_HOME", ".config") / "caesura.toml"


def _base(variable: str, default: str) -> Path:
    # The specification says to ignore a path that is not absolute.
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / default) / "caesura"
