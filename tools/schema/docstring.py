"""Parts of a function's docstring: its first paragraph and its "Args:" section."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*$", re.IGNORECASE
)
_ARGUMENTS = re.compile(r"(Args|Arguments|Parameters):\s*$", re.IGNORECASE)
# "city: text", "city (str): text", "city (str, optional): text"
_ENTRY = re.compile(r"(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")


def first_paragraph(function: Callable[..., Any]) -> str:
    """Return the docstring's first paragraph on one line; "" without one."""
    lines: list[str] = []
    for line in _lines(function):
        if not line.strip() or _SECTION.match(line):
            break
        lines.append(line.strip())
    return " ".join(lines)


def argument_descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return each argument's text in the Google-style "Args:" section, on one line."""
    found: dict[str, list[str]] = {}
    name = ""
    entry_indent: int | None = None
    for line in _section(_lines(function)):
        indent = len(line) - len(line.lstrip())
        entry_indent = indent if entry_indent is None else entry_indent
        entry = _ENTRY.match(line.strip()) if indent == entry_indent else None
        if entry:
            name = entry["name"]
            found[name] = [entry["text"].strip()]
        elif name:
            found[name].append(line.strip())
    texts = {name: " ".join(filter(None, parts)) for name, parts in found.items()}
    return {name: text for name, text in texts.items() if text}


def _lines(function: Callable[..., Any]) -> list[str]:
    return (inspect.getdoc(function) or "").splitlines()


def _section(lines: list[str]) -> list[str]:
    """Return the non-empty, indented lines under the "Args:" heading."""
    inside = False
    section: list[str] = []
    for line in lines:
        if not inside:
            inside = bool(_ARGUMENTS.match(line))
        elif line.strip() and not line.startswith((" ", "\t")):
            break
        elif line.strip():
            section.append(line)
    return section
