"""The worker's side: `python -m caesura.tools.worker.child MODULE`.

Reads `{"call": NAME, "arguments": {...}}` lines and answers each with `{"result": ...}` or
`{"error": TEXT}`. MODULE's public functions are what may be called. Whatever it prints goes to
stderr: stdout belongs to the answers.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve calls until stdin ends."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        answers.write(json.dumps(answer(module, json.loads(line))) + "\n")
        answers.flush()


def answer(module: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Run one call; what goes wrong is the answer."""
    try:
        return {"result": function_of(module, asked["call"])(**asked["arguments"])}
    except BaseException as error:  # a Rust extension's panic too
        name = type(error).__name__
        return {"error": f"{error}" or name, "kind": name}


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """The module's function of that name."""
    found = None if name.startswith("_") else getattr(module, name, None)
    if not callable(found):
        raise LookupError(f"{module.__name__} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, however busy it is (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit("the parent is gone")


if __name__ == "__main__":
    main()
