"""The worker's side, run as a file: `python child.py MODULE OPTIONS`; it imports no other file.

It becomes two processes. The *keeper* only waits, so that it can always act. When the parent dies,
closes the pipe or sends SIGTERM, the keeper kills every process that the worker started, in any
process group or session, and exits. The *worker* reads lines
`{"id": N, "call": NAME, "arguments": {...}}` and answers each with
`{"id": N, "result": ...}` or `{"id": N, "error": TEXT, "kind": CLASS}`. The public functions of
MODULE can be called. Their output goes to stderr; no process that they start inherits the pipes.
"""

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_ANSWER_BYTES = 64 * 2**20
MAX_TRACE_CHARACTERS = 8_000
NICENESS = 5
"""Decoding goes before tools that compute: they get a third of a contended processor."""
KILLING_SECONDS = 1.5
"""How long the keeper tries to kill; a process that survives it hangs in the kernel."""


def main() -> None:
    """Serve calls until the pipe closes."""
    options = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    requests, answers = os.dup(0), os.dup(1)  # processes that the module starts do not inherit them
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    become_two(requests, answers, options["parent"])
    if options["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"],) * 2)
    with os.fdopen(requests, "rb") as lines, os.fdopen(answers, "wb") as out:
        serve(importlib.import_module(sys.argv[1]), lines, out)


def serve(module: Any, lines: Iterable[bytes], out: BinaryIO) -> None:
    """Answer every line."""
    for line in lines:
        asked = json.loads(line)
        out.write(as_line({"id": asked["id"], **answer(module, asked)}))
        out.flush()


def answer(module: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Run one call and return its result, or its failure as an answer."""
    try:
        result = function_of(module, asked["call"])(**asked["arguments"])
        if len(line := as_line(result)) > MAX_ANSWER_BYTES:
            raise ValueError(
                f"the result has {len(line)} bytes; at most {MAX_ANSWER_BYTES} are allowed"
            )
    except BaseException as error:  # includes a Rust extension's panic
        name = type(error).__name__
        trace = "".join(traceback.format_exception(error))[-MAX_TRACE_CHARACTERS:]
        return {"error": f"{error}" or name, "kind": name, "trace": trace}
    return {"result": result}


def as_line(value: Any) -> bytes:
    """Return the value as a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """Return the module's function of that name; raises LookupError."""
    found = None if name.startswith("_") else getattr(module, name, None)
    if not callable(found):
        raise LookupError(f"{module.__name__} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def become_two(requests: int, answers: int, parent: int) -> None:
    """Fork; return in the worker, and stay in the keeper until the worker has ended.

    The keeper exits when the thread that started it ends: that thread runs the event loop, and
    without the loop the worker can get no more calls.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    process_control(PR_SET_PDEATHSIG, signal.SIGTERM)
    keeper = os.getpid()
    worker = os.fork() if os.getppid() == parent else 0
    if not worker:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(wake)
        process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            sys.exit("the parent is gone")
        return
    os.close(answers)  # the pipe must close with the worker
    status = watch(worker, requests, woken, told)
    kill_descendants()
    leave(status)


def watch(worker: int, requests: int, woken: int, told: list[int]) -> int:
    """Wait until the worker ends or must end; return its exit status."""
    poll = select.poll()
    poll.register(requests, 0)  # POLLHUP: the parent closed its end
    poll.register(woken, select.POLLIN)
    while not told:
        events = dict(poll.poll())
        if woken in events:
            os.read(woken, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == worker:
                    return ended[1]
        if requests in events:
            break
    return 0


def kill_descendants() -> None:
    """Kill all descendants of the worker; orphans among them are the keeper's children."""
    if not Path("/proc/self/stat").exists():  # not Linux: only the process group can be found
        os.killpg(0, signal.SIGKILL)
    until = time.monotonic() + KILLING_SECONDS
    while time.monotonic() < until:
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, read from Linux' /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "PID (NAME) STATE PARENT ...", where NAME may contain any character
            parent = entry.read_bytes().rpartition(b")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def leave(status: int) -> NoReturn:
    """Exit with the worker's status."""
    if os.WIFSIGNALED(status):
        with suppress(OSError, ValueError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def process_control(option: int, value: int) -> None:
    """Call Linux' prctl; do nothing on other systems."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
