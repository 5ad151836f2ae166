"""The settings of the scheduler, and `caesura.toml`, from the types that read them."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from caesura.scheduler.settings import Settings
from caesura.tools.config.agents import AgentSettings, PriceSettings, SamplingSettings
from caesura.tools.config.caesura_toml import (
    ArtifactSettings,
    DataSettings,
    LimitSettings,
    TraceSettings,
    TrajectorySettings,
)
from caesura.tools.config.functions import FunctionSettings
from caesura.tools.config.toolset import BUILTINS
from caesura.tools.mcp.settings import ServerSettings
from caesura.tools.people import PeopleSettings
from tests.reference.markdown import cell, code, page, paragraphs, table

SCHEDULER = (
    "They stand under `caesura` in vLLM's `additional_config`: `vllm serve MODEL --scheduler-cls"
    ' caesura.scheduler.vllm.CaesuraScheduler --additional-config \'{"caesura": {"retention":'
    " 60}}'`. In Python they are `start_engine(settings={...})`. `caesura serve` has options for"
    " most of them ([options](options.md#caesura-serve))."
)
TOML = (
    "`caesura serve`, `ask`, `chat`, `tools` and `Agent(config=...)` read it: the file that"
    " `--config` names, else `./caesura.toml`, else `caesura/caesura.toml` in the user's"
    " directory of configurations (`XDG_CONFIG_HOME`). Paths are relative to the file. A"
    " `./caesura.toml` that starts programs, imports modules or uses variables needs"
    " `caesura tools trust` ([tools](../guides/tools/README.md)). An unknown key is an error that"
    " names the known ones."
)
TOP = (
    ("`allow_private`", "yes or no", "no", "whether tools may reach addresses that are not public"),
    ("`mcp_config`", "path", "", "a file of MCP servers in JSON, as other programs have it"),
    ("`tools.enabled`", "list of text", "all", "which built-in tools and functions are on"),
)
SECTIONS: Mapping[str, type[BaseModel]] = {
    "limits": LimitSettings,
    "limits.prices": PriceSettings,
    "agents.NAME": AgentSettings,
    "agents.NAME.sampling": SamplingSettings,
    "mcpServers.NAME": ServerSettings,
    "people": PeopleSettings,
    "trace": TraceSettings,
    "trajectories": TrajectorySettings,
    "artifacts": ArtifactSettings,
    "data": DataSettings,
    "tools.NAME, a Python function": FunctionSettings,
}
HEAD = ("key", "type", "default", "what it says")
WORDS = {str: "text", int: "whole number", float: "number", bool: "yes or no", Path: "path"}


def settings_page() -> str:
    """Return the page of the scheduler's settings."""
    hints = get_type_hints(Settings)
    defaults = Settings()
    rows = [
        [code(each.name), type_of(hints[each.name]), value_of(getattr(defaults, each.name))]
        for each in fields(Settings)
    ]
    return page(
        "Settings of the scheduler",
        SCHEDULER,
        table(("setting", "type", "default"), rows),
        "## What they do\n\n",
        paragraphs(Settings),
    )


def toml_page() -> str:
    """Return the page of `caesura.toml`."""
    parts = [table(HEAD, TOP)]
    for name, model in SECTIONS.items():
        parts += section(f"[{name}]" if "," not in name else "[tools.NAME] of a function", model)
    for tool, built in BUILTINS.items():
        settings = import_module(built.module).Settings
        parts += section(f"[tools.{tool}]", settings)
    return page("caesura.toml", TOML, *parts)


def section(title: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield the heading and the table of a section, with the tables inside it."""
    yield f"## {title}\n\n"
    yield table(HEAD, rows_of(model))


def rows_of(model: type[BaseModel], before: str = "") -> Iterator[list[str]]:
    """Yield the row of each key, those of tables inside this one too."""
    for name, field in model.model_fields.items():
        key = f"{before}{field.alias or name}"
        inner = model_in(field.annotation)
        if inner is not None and inner not in SECTIONS.values():
            yield from rows_of(inner, f"{key}.")
        else:
            kind = type_of(field.annotation) if inner is None else "table"
            yield [code(key), kind, default_of(field), field.description or ""]


def model_in(kind: Any) -> type[BaseModel] | None:
    """Return the model of a table inside a table."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    found = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
    return found[0] if found else None


def type_of(kind: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_of(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(type_of(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin is None:
        return WORDS.get(kind, getattr(kind, "__name__", str(kind)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"table of {type_of(arguments[1])}"
    return f"list of {type_of(arguments[0])}"


def default_of(field: FieldInfo) -> str:
    """Return the default of a key, or that it is needed."""
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    return "" if value is PydanticUndefined or isinstance(value, BaseModel) else value_of(value)


def value_of(value: Any) -> str:
    """Return a default as the pages write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, str | tuple | list | dict) and not value):
        return ""
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(code(str(each)) for each in value)
    return code(cell(str(value)))
