"""The worker's side, run as a file: `python child.py MODULE OPTIONS`. It needs no other module.

It becomes two processes. The *keeper* does nothing but wait, so that it can always act: when the
parent dies, closes the pipe or sends SIGTERM, it kills all that the worker has started, whatever
that made of process groups and sessions, and goes. The *worker* reads
`{"id": N, "call": NAME, "arguments": {...}}` lines and answers each with
`{"id": N, "result": ...}` or `{"id": N, "error": TEXT, "kind": CLASS}`. MODULE's public functions
are what may be called. Whatever they print goes to stderr: nobody else gets hold of the pipes.
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
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_ANSWER_BYTES = 64 * 2**20
NICENESS = 5
"""Streams come before tools that compute: a third of the processor time where it is short."""
KILLING_SECONDS = 1.5
"""How long the keeper tries; what cannot be killed in that time hangs in the kernel."""


def main() -> None:
    """Serve calls until the pipe ends."""
    options = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    requests, answers = os.dup(0), os.dup(1)  # not inherited by what the module starts
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
    """Run one call; what goes wrong is the answer."""
    try:
        result = function_of(module, asked["call"])(**asked["arguments"])
        if len(line := as_line(result)) > MAX_ANSWER_BYTES:
            raise ValueError(f"the result has {len(line)} bytes, {MAX_ANSWER_BYTES} are allowed")
    except BaseException as error:  # a Rust extension's panic too
        name = type(error).__name__
        return {"error": f"{error}" or name, "kind": name}
    return {"result": result}


def as_line(value: Any) -> bytes:
    """The value as a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """The module's function of that name."""
    found = None if name.startswith("_") else getattr(module, name, None)
    if not callable(found):
        raise LookupError(f"{module.__name__} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def become_two(requests: int, answers: int, parent: int) -> None:
    """Fork; return in the worker, keep watch in the keeper until all is over.

    The keeper goes when the thread that started it ends: that is the event loop's, and nobody
    could call the worker after it.
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
    os.close(answers)  # so that the pipe ends with the worker
    status = watch(worker, requests, woken, told)
    kill_descendants()
    leave(status)


def watch(worker: int, requests: int, woken: int, told: list[int]) -> int:
    """Wait until the worker ends, or has to; return its exit status."""
    poll = select.poll()
    poll.register(requests, 0)  # POLLHUP: the parent's end is closed
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
    """Kill all that came of the worker. Orphans among them have become the keeper's children."""
    if not Path("/proc/self/stat").exists():  # not Linux: no more than the group can be found
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
    """The processes below `root`, by Linux' /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "PID (NAME) STATE PARENT ...", where NAME may hold anything
            parent = entry.read_bytes().rpartition(b")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def leave(status: int) -> NoReturn:
    """Exit as the worker did."""
    if os.WIFSIGNALED(status):
        with suppress(OSError, ValueError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def process_control(option: int, value: int) -> None:
    """Linux' prctl; elsewhere nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
