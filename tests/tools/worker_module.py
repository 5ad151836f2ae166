"""What the tests' workers run; they import it by its name alone."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def echo(value: Any) -> Any:
    return value


def pid() -> int:
    return os.getpid()


def niceness() -> int:
    return os.nice(0)


def environment() -> dict[str, str]:
    return dict(os.environ)


def path() -> list[str]:
    return sys.path


def chatter(text: str) -> str:
    """Write to where answers must not be written."""
    print(text, flush=True)
    os.write(1, text.encode() + b"\n")
    subprocess.run(["echo", text], check=True)
    return "answered"


def read_stdin() -> str:
    return sys.stdin.read()


def fail(message: str) -> None:
    raise ValueError(message)


def quit(status: int) -> None:
    sys.exit(status)


def vanish(status: int) -> None:
    print("these are my last words", file=sys.stderr, flush=True)
    os._exit(status)


def crash() -> None:
    ctypes.string_at(0)


def no_json() -> object:
    return object()


def count(to: int, tell: Callable[[Any], None]) -> str:
    """Tell every number on the way."""
    for number in range(to):
        print("no news", flush=True)
        tell({"at": number})
    return "counted"


def long(characters: int) -> str:
    return "x" * characters


def allocate(count: int) -> int:
    return len(bytearray(count))


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def spin(seconds: float) -> int:
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        count += 1
    return count


def hold_the_lock() -> None:
    """Sleep in C without letting any other thread of Python's run."""
    ctypes.PyDLL(None).sleep(600)


def leave_a_child(own_session: bool = False, then_hang: bool = False) -> int:
    """Start a process that sleeps, holding the same pipes; return its id."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=own_session)
    if then_hang:
        time.sleep(600)
    return child.pid


def leave_an_orphan() -> int:
    """Start a process that leaves a sleeping one behind, in a session of its own."""
    code = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, "
        "stdout=subprocess.DEVNULL).pid)"
    )
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return int(told.stdout)


def forget_threads() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def garbage(text: str) -> None:
    """Write to the pipe of the answers, found among the open files."""
    for number in range(3, 64):
        try:
            target = str(Path(f"/proc/self/fd/{number}").readlink())
            if target.startswith(("socket:", "pipe:")):
                os.write(number, text.encode())
        except OSError:
            continue
