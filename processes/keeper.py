"""A child process and its keeper, run as a file: `python keeper.py OPTIONS`; it imports no other.

OPTIONS is a JSON object. With `module`, the child runs the functions of that module. It reads lines
`{"id": N, "call": NAME, "arguments": {...}}` and answers each with `{"id": N, "result": ...}` or
`{"id": N, "error": TEXT, "kind": CLASS}`. With `"follow": true`, the function also gets a `tell`,
which sends `{"id": N, "news": ...}` before that. The public functions of the module can be called.
Their output goes to stderr; no process that they start inherits the pipes. With `command`, the
child is that program, on the processors `cpus`.

This process becomes two. The *keeper* only waits, so that it can always act. When the parent dies,
closes the pipe or sends SIGTERM, the keeper kills every process that the child started, in any
process group or session, and exits. With `execute` there is no keeper: this process becomes that
program, which uses the pipes itself, and is killed when the parent dies.
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
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_ANSWER_BYTES = 64 * 2**20
MAX_TRACE_CHARACTERS = 8_000
NICENESS = 5
"""Decoding goes before tools that compute: they get a third of a contended processor."""
KILLING_SECONDS = 1.5
"""How long a worker's keeper tries to kill; a process that survives it hangs in the kernel."""
TRACKER = b"multiprocessing.resource_tracker"
TRACKER_SECONDS = 2.0
"""How long the processes that remove shared memory of killed ones may take for it."""


def main() -> None:
    """Start what the options name."""
    options = json.loads(sys.argv[1])
    if "execute" in options:
        execute(options)
    elif "command" in options:
        run_command(options)
    else:
        run_module(options)


# -- what is kept --------------------------------------------------------------------------------


def execute(options: dict[str, Any]) -> None:
    """Become a program that dies with the parent."""
    end_with_parent(signal.SIGKILL)  # it survives the exec
    if os.getppid() != options["parent"]:
        sys.exit("the parent is gone")
    os.execvp(options["execute"][0], options["execute"])


def run_command(options: dict[str, Any]) -> None:
    """Become a program's keeper, and start the program.

    The program may hold a GPU, which the next one needs: its processes are waited for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, options["cpus"])
    become_two(0, 1, None, killing_seconds=inf, tracker_seconds=TRACKER_SECONDS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvp(options["command"][0], options["command"])


def run_module(options: dict[str, Any]) -> None:
    """Become a worker and its keeper, and serve calls until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    requests, answers = os.dup(0), os.dup(1)  # processes that the module starts do not inherit them
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    become_two(requests, answers, options["parent"], killing_seconds=KILLING_SECONDS)
    if options["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"],) * 2)
    with os.fdopen(requests, "rb") as lines, os.fdopen(answers, "wb") as out:
        serve(importlib.import_module(options["module"]), lines, out)


def serve(module: Any, lines: Iterable[bytes], out: BinaryIO) -> None:
    """Answer every line."""
    for line in lines:
        asked = json.loads(line)
        tell = partial(send_news, out, asked["id"])
        send(out, {"id": asked["id"], **answer(module, asked, tell)})


def send(out: BinaryIO, said: dict[str, Any]) -> None:
    """Write a line to the parent."""
    out.write(as_line(said))
    out.flush()


def send_news(out: BinaryIO, number: int, news: Any) -> None:
    """Tell the parent how far a call is."""
    send(out, {"id": number, "news": news})


def answer(module: Any, asked: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Run one call and return its result, or its failure as an answer."""
    try:
        follower = {"tell": tell} if asked.get("follow") else {}
        result = function_of(module, asked["call"])(**asked["arguments"], **follower)
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


# -- the keeper ----------------------------------------------------------------------------------


def become_two(
    requests: int,
    answers: int,
    parent: int | None,
    *,
    killing_seconds: float,
    tracker_seconds: float = 0.0,
) -> None:
    """Fork; return in the child, and stay in the keeper until the child has ended.

    `requests` and `answers` are the pipes to the parent. The keeper of a `parent` exits when the
    thread that started it ends: that thread runs the event loop, and without the loop the child
    can get no more calls.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    if parent is not None:
        end_with_parent(signal.SIGTERM)
    keeper = os.getpid()
    child = os.fork() if parent in (None, os.getppid()) else 0
    if not child:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(wake)
        end_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            sys.exit("the parent is gone")
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), answers)  # the pipe must close with the child
    status = watch(child, requests, woken, told)
    kill_descendants(killing_seconds, tracker_seconds)
    leave(status)


def watch(child: int, requests: int, woken: int, told: list[int]) -> int:
    """Wait until the child ends or must end; return its exit status."""
    poll = select.poll()
    poll.register(requests, 0)  # POLLHUP: the parent closed its end
    poll.register(woken, select.POLLIN)
    while not told:
        events = dict(poll.poll())
        if woken in events:
            os.read(woken, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return ended[1]
        if requests in events:
            break
    return 0


def kill_descendants(seconds: float, tracker_seconds: float) -> None:
    """Kill all processes below this one; orphans among them are its children."""
    if not Path("/proc/self/stat").exists():  # not Linux: only the process group can be found
        os.killpg(0, signal.SIGKILL)
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < seconds:
        for pid in descendants(os.getpid()):
            if spent >= tracker_seconds or not is_tracker(pid):
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


def is_tracker(pid: int) -> bool:
    """Return whether a process removes the shared memory of others when they have ended."""
    try:
        return TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def leave(status: int) -> NoReturn:
    """Exit with the child's status."""
    if os.WIFSIGNALED(status):
        with suppress(OSError, ValueError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def end_with_parent(number: signal.Signals) -> None:
    """Have this process sent a signal when the thread that started it ends."""
    process_control(PR_SET_PDEATHSIG, number)


def process_control(option: int, value: int) -> None:
    """Call Linux' prctl; do nothing on other systems."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
