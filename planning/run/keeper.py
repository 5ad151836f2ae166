"""An engine's keeper, run as a file: `python keeper.py OPTIONS`; it imports no other file.

OPTIONS is a JSON object with `command`, the engine's, and `cpus`, the processors that it may use.
The keeper starts the engine and waits. When its input closes, as it does when the process that
started it ends in any way, the keeper kills the engine and every process that the engine has
started, in any process group or session. It exits with the engine's status.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TRACKER = b"multiprocessing.resource_tracker"
TRACKER_SECONDS = 2.0
"""How long the processes that remove shared memory of killed ones may take for it."""
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}


def main() -> None:
    """Start the engine, and end it when the input closes."""
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, options["cpus"])
    engine = subprocess.Popen(
        options["command"], stdin=subprocess.DEVNULL, preexec_fn=prepare, start_new_session=True
    )
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the pipe closes with the engine
    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
    while signal.sigwait(SIGNALS) == signal.SIGCHLD and engine.poll() is None:
        reap(engine.pid)
    kill_descendants()
    status = engine.wait()
    os._exit(status if status >= 0 else 128 - status)


def prepare() -> None:
    """Make a new process one that dies with the keeper and takes signals."""
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def wait_for_end_of_input() -> None:
    """Send this process SIGTERM once nothing can be read any more."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def reap(engine: int) -> None:
    """Forget ended orphans, but leave the engine's status to its handle."""
    for child in children():
        if child != engine:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def kill_descendants() -> None:
    """Kill all processes below this one; orphans among them become its children."""
    until = time.monotonic() + TRACKER_SECONDS
    while found := children():
        hurry = time.monotonic() > until
        for child in found:
            if hurry or not is_tracker(child):
                with suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.002)


def children() -> list[int]:
    """Return the processes whose parent is this one, from Linux' /proc."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def is_tracker(pid: int) -> bool:
    """Return whether a process removes the shared memory of others when they have ended."""
    try:
        return TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def process_control(option: int, value: int) -> None:
    """Call Linux' prctl; do nothing on other systems."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
