"""The session's Python in a sandbox: runs code that the first process hands it, and keeps state.

It runs there as a program of its own, and imports the standard library alone.
"""

import ast
import json
import linecache
import os
import sys
import traceback
from typing import Any

CHANNEL = 3
"""The descriptor on which requests come and answers go."""
MAX_VALUE = 8_000
MAX_ERROR = 6_000
_FIGURES = "matplotlib.pyplot"


def main() -> None:
    """Answer requests until the other side is gone."""
    os.set_inheritable(CHANNEL, False)
    sys.path.insert(0, os.getcwd())
    sys.argv = [""]
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    with os.fdopen(CHANNEL, "rb", closefd=False) as requests:
        for line in _lines(requests):
            request = json.loads(line)
            _answer({"number": request["number"], "begun": True})
            told = _told(request["code"], f"<call {request['number']}>", space)
            _answer({"number": request["number"], **told})


def _lines(requests: Any) -> Any:
    """Yield lines; an interruption between two calls is none of theirs."""
    while True:
        try:
            line = requests.readline()
        except KeyboardInterrupt:
            continue
        if not line:
            return
        yield line


def _answer(told: dict[str, Any]) -> None:
    data = json.dumps(told).encode() + b"\n"
    while data:
        data = data[os.write(CHANNEL, data) :]


def _told(code: str, name: str, space: dict[str, Any]) -> dict[str, Any]:
    """Run code; return the value of its last expression, or its exception."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    told: dict[str, Any] = {"value": None, "error": None}
    try:
        told["value"] = _run(code, name, space)
        _save_figures(name)
    except BaseException as error:
        told["error"] = _error(error, name)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            continue
    return told


def _run(code: str, name: str, space: dict[str, Any]) -> str | None:
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), name, "eval"), space)
    if value is None:
        return None
    space["_"] = value
    return _cut(repr(value), MAX_VALUE)


def _save_figures(name: str) -> None:
    """Save the figures that matplotlib holds, as nobody could see them otherwise."""
    pyplot: Any = sys.modules.get(_FIGURES)
    for number in pyplot.get_fignums() if pyplot is not None else ():
        pyplot.figure(number).savefig(f"figure-{name[6:-1]}-{number}.png")
    if pyplot is not None:
        pyplot.close("all")


def _error(error: BaseException, name: str) -> str:
    """Return the traceback, without the frames of this module."""
    frames = list(traceback.extract_tb(error.__traceback__))
    first = next((n for n, each in enumerate(frames) if each.filename == name), len(frames))
    lines = traceback.format_list(frames[first:])
    try:
        lines += traceback.format_exception_only(type(error), error)
    except BaseException:
        lines.append(type(error).__name__)
    head = "Traceback (most recent call last):\n" if frames[first:] else ""
    return _cut((head + "".join(lines)).strip(), MAX_ERROR)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    note = f"\n[... {len(text) - most} characters left out ...]\n"
    return f"{text[: most // 2]}{note}{text[-most // 2 :]}"


if __name__ == "__main__":
    main()
