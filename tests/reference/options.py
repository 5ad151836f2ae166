"""The options of all commands, from the commands themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from caesura.runtime.cli.app import COMMANDS, app, command
from tests.reference.markdown import code, page, table

ABOUT = (
    "`caesura COMMAND --help` shows the same. Options behind `--` are those of `vllm serve`. An"
    " option whose place names a variable can be set by that environment variable."
)


def options_page() -> str:
    """Return the page."""
    own = section("caesura", typer.main.get_command(app), "##")
    return page("Options", ABOUT, *own, *(part for name in COMMANDS for part in told(name)))


def told(name: str) -> Iterator[str]:
    """Yield the section of a command, or those of its subcommands."""
    found = command(name)
    if hasattr(found, "commands"):
        yield f"## caesura {name}\n\n{COMMANDS[name][1]}\n\n"
        for sub, each in found.commands.items():
            yield from section(f"caesura {name} {sub}", each, "###")
    else:
        yield from section(f"caesura {name}", found, "##", COMMANDS[name][1])


def section(title: str, found: Any, level: str, about: str = "") -> Iterator[str]:
    """Yield the heading, the arguments and the options of a command."""
    said = about or (found.help or "").partition("\n\n")[0].replace("\n", " ")
    yield f"{level} {title}\n\n{said}\n\n"
    panels: dict[str, list[list[str]]] = {}
    for each in found.params:
        if not getattr(each, "hidden", False) and each.name != "help":
            panel = getattr(each, "rich_help_panel", None) or ""
            panels.setdefault(panel, []).append(row(each))
    for panel, rows in panels.items():
        if panel:
            yield f"*{panel}*\n\n"
        yield table(("option", "default", "what it does"), rows)


def row(parameter: Any) -> list[str]:
    """Return the row of an option or an argument."""
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if is_argument else spelled(parameter)
    variables = parameter.envvar or ()
    variables = [variables] if isinstance(variables, str) else variables
    said = (getattr(parameter, "help", None) or "").strip()
    places = ", ".join(code(each) for each in variables)
    text = f"{said} Variable: {places}." if places else said
    return [", ".join(code(each) for each in names), default_of(parameter), text]


WORDS = {"str": "TEXT", "int": "N", "float": "X", "path": "PATH"}


def spelled(option: Any) -> list[str]:
    """Return how an option is written, with what it takes."""
    names = [*option.opts, *option.secondary_opts]
    if option.is_flag or option.count:
        return names
    kind = option.bare_type().strip("<>").removeprefix("list[").removesuffix("]")
    choices = option.type_descriptor.choices if option.type_descriptor.is_choice else ()
    chosen = "|".join(str(getattr(each, "value", each)) for each in choices or ())
    takes = option.metavar or chosen or WORDS.get(kind.lower(), kind.upper())
    return [*names[:-1], f"{names[-1]} {takes}"]


def default_of(parameter: Any) -> str:
    """Return the default as the page writes it; switches are off, and others have none."""
    value = parameter.default
    if value is None or value is False or value in ((), [], "") or callable(value):
        return "needed" if parameter.required else ""
    if isinstance(value, bool):
        return "on"
    if isinstance(value, Path):
        return code(value.as_posix())
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e6 else str(value)
    if isinstance(value, list | tuple):
        return ", ".join(code(str(each)) for each in value)
    return code(str(getattr(value, "value", value)))
