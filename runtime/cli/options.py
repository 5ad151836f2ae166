"""Options that several commands share, as dataclasses.

A command takes dataclasses, and `filled` lets Typer see an option for each of their fields.
"""

import inspect
import re
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_type_hints

import typer

from caesura.intercept.calls.formats import NAMES
from caesura.runtime.errors import UsageError
from caesura.scheduler.engine_options import EngineOptions
from caesura.stores.sqlite import may_be_one


def filled(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its dataclass parameters.

    A field is declared like a parameter of a Typer command, by an `Annotated` type and a default,
    or it is a dataclass of such fields. Options without a panel of `--help` of their own are in the
    `panel` of their dataclass, if it has one. A switch has only the name of its field, unless it
    states others. The names of all fields and other parameters of a command
    must differ.
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
            given[name] = _group_of(group, given)
        command(**given)

    # Typer reads the parameters from the signature, and their types from the annotations.
    fill.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    fill.__annotations__ = {each.name: each.annotation for each in parameters}
    return fill


def _group_of(group: Any, given: dict[str, Any]) -> Any:
    """Return a dataclass with its options, which are taken out of those that were given."""
    hints = get_type_hints(group)
    return group(
        **{
            each.name: _group_of(hints[each.name], given)
            if is_dataclass(hints[each.name])
            else given.pop(each.name)
            for each in fields(group)
        }
    )


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    options: list[inspect.Parameter] = []
    for each in fields(group):
        if is_dataclass(hints[each.name]):
            options += _options_of(hints[each.name])
            continue
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        kind, hint = inspect.Parameter.KEYWORD_ONLY, _option(group, each.name, hints[each.name])
        options.append(inspect.Parameter(each.name, kind, default=default, annotation=hint))
    return options


def _option(group: Any, name: str, hint: Any) -> Any:
    """Return a field's type with its option, which has all that the field and the group imply."""
    value, option = get_args(hint)
    option = copy(option)  # other groups may share it
    option.rich_help_panel = option.rich_help_panel or getattr(group, "panel", None)
    if value is bool and option.default is ...:  # where Typer takes the first name
        option.default = f"--{name.replace('_', '-')}"
    made: Any = Annotated
    return made[value, option]


DEFAULT_HOST_GIB = 4.0

PAUSES = "Paused requests"
TRACES = "Traces"
"""Panels of `--help`."""

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Hugging Face id or directory. Default: the bundled model."),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"The model's call format: {', '.join(NAMES)}, or a tool parser of vLLM's. Default: by"
        " its chat template.",
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        "-t",
        help="A built-in tool or an MCP server of the configuration; repeatable. Default: all"
        " that are on.",
    ),
]
AgentName = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        metavar="NAME",
        help="An agent of the configuration, with its instructions, tools and limits.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The configuration of tools and limits. Default: ./caesura.toml, else"
        " ~/.config/caesura/caesura.toml.",
    ),
]
VllmArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- VLLM_OPTIONS", help="Options of `vllm serve`, after `--`."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show vLLM's log.")]
HostGib = Annotated[
    float,
    typer.Option(
        min=0,
        help="GiB of host memory for swapped KV blocks; 0 turns swapping off.",
        rich_help_panel=PAUSES,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        dir_okay=False,
        help="Record traces in this file, for `caesura trace`.",
        rich_help_panel=TRACES,
    ),
]

TraceTitle = Annotated[
    str | None,
    typer.Option(
        "--trace-title",
        metavar="TEXT",
        help="What the recording is called in lists. Default: the command and the model.",
        rich_help_panel=TRACES,
    ),
]


def search_here(spec: str) -> None:
    """Let a class of the user's own that `spec` names be imported from the current directory.

    Python searches it for `python -m caesura`, but not for `caesura`. It is searched last, and not
    at all unless the user names a module. Processes that are spawned later search it too.
    """
    here = str(Path.cwd())
    if re.search(r"[a-z_]\w*\.[a-z_]", spec, re.IGNORECASE) and here not in sys.path:
        sys.path.append(here)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model, its call format, the configuration, and vLLM's options."""

    vllm_args: VllmArgs = None
    model: Model = None
    config: ConfigFile = None
    format: Formats = None
    thinking_as_text: Annotated[
        bool,
        typer.Option(
            "--thinking-as-text",
            help="Show what the model thinks as part of its answer, instead of as reasoning.",
        ),
    ] = False
    special_tokens_in_text: Annotated[
        bool,
        typer.Option(
            "--special-tokens-in-text",
            help="Let texts of users and tools hold special tokens of the model. By default what"
            " they spell is text.",
        ),
    ] = False

    def engine(self, **more: Any) -> EngineOptions:
        """Return the options of the engine; `more` are further fields of `EngineOptions`."""
        return EngineOptions(
            self.model,
            formats=self.format,
            vllm_args=self.vllm_args or (),
            thinking_as_text=self.thinking_as_text,
            special_tokens_in_text=self.special_tokens_in_text,
            **more,
        )

    def with_model_first(self) -> Self:
        """Return the options with the model that stands before vLLM's, as in `vllm serve MODEL`.

        Raises `UsageError` if --model names one too.
        """
        first, *rest = self.vllm_args or [""]
        if not first or first.startswith("-"):
            return self
        if self.model is not None:
            raise UsageError(
                f"two models are named, {self.model} and {first}: leave one of them out"
            )
        return replace(self, model=first, vllm_args=rest)


@dataclass(frozen=True, slots=True)
class Traces:
    """Whether a command records traces, the file, and whether it records content."""

    file: TraceFile = None
    off: Annotated[
        bool, typer.Option("--no-trace", help="Record no traces.", rich_help_panel=TRACES)
    ] = False
    content: Annotated[
        bool,
        typer.Option(
            "--trace-content",
            help="Also record the texts of users, models and tools.",
            rich_help_panel=TRACES,
        ),
    ] = False
    title: TraceTitle = None

    @classmethod
    def into(cls, file: Path | None, title: str | None) -> Self:
        """Return the options of a command that records only into a given file.

        Raises `UsageError` for a title without a file.
        """
        if file is None and title is not None:
            raise UsageError(f"--trace-title {title!r} is of a recording: also give --trace FILE")
        return cls(file, off=file is None, title=title)

    def check(self) -> None:
        """Raise `UsageError` for invalid options, before an engine starts."""
        given = {
            "--trace": self.file is not None,
            "--trace-content": self.content,
            "--trace-title": self.title is not None,
        }
        if self.off and (others := [name for name, is_given in given.items() if is_given]):
            raise UsageError(f"--no-trace excludes {others[0]}: leave one of the two out")
        if self.title is not None and not self.title.strip():
            raise UsageError(f"--trace-title is empty, got {self.title!r}: give a title")
        if self.file is not None and not self.file.absolute().parent.is_dir():
            raise UsageError(
                f"there is no directory {self.file.absolute().parent} for --trace: create it, or"
                " choose another file"
            )
        if self.file is not None and not may_be_one(self.file):
            raise UsageError(
                f"{self.file} is not a file of traces: choose another file, or move it away"
            )
