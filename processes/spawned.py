"""Processes that `multiprocessing` spawns: how they start, and how they end with their parent.

Engines are started so, and the processes that simulate. What may hang or crash has a keeper
instead (`keeper.py`), which kills all that it has started.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, ClassVar

LOOK_SECONDS = 0.05
"""How often a process that is being set up looks whether its parent is known."""


# -- in the parent -------------------------------------------------------------------------------


@contextmanager
def deaf_children() -> Iterator[None]:
    """Block Ctrl-C in the processes that start within, which inherit the signal mask.

    A terminal sends Ctrl-C to all processes, but only the parent must act on it. The parent
    receives a pending one at the end of the block.
    """
    # The tracker unblocks Ctrl-C when it starts, so it must run before the mask is set.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Program(ModuleType):
    """The main module, which has no file for threads that start a process."""

    starters: ClassVar[set[int]] = set()
    lock = threading.Lock()

    def __getattribute__(self, name: str) -> Any:
        if name in ("__file__", "__spec__") and threading.get_ident() in _Program.starters:
            return None
        return super().__getattribute__(name)


def _show_program() -> None:
    """Give a forked process its main module back: it has the starting thread's identity."""
    _Program.lock = threading.Lock()  # another thread of the parent may have held it
    _Program.starters.clear()
    if type(main := sys.modules["__main__"]) is _Program:
        main.__class__ = ModuleType  # type: ignore[assignment]


os.register_at_fork(after_in_child=_show_program)


@contextmanager
def program_runs_once() -> Iterator[None]:
    """Keep processes that this thread spawns within the context from running the program again.

    A spawned process imports the file of its parent's main module, for what is pickled by a
    reference to it. A file that starts one without `if __name__ == "__main__":` would start
    another one there. `multiprocessing` takes a main module without `__file__` and `__spec__` for
    an interactive one. The class of a module may be assigned, and other threads see both
    attributes as they are. So does a process that is forked, where vLLM's compiler reads them.
    """
    main, thread = sys.modules["__main__"], threading.get_ident()
    with _Program.lock:
        if type(main) is ModuleType:  # a shell's own class of main modules has no file to run
            main.__class__ = _Program
        _Program.starters.add(thread)
    try:
        yield
    finally:
        with _Program.lock:
            _Program.starters.discard(thread)
            if not _Program.starters and type(main) is _Program:
                main.__class__ = ModuleType  # type: ignore[assignment]


def names_program(value: object) -> bool:
    """Return whether a process that is given the value needs the main module to read it."""
    try:
        return b"__main__" in bytes(ForkingPickler.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError):
        return False  # a forked process has the module, and the parent tells why it cannot


# -- in the child --------------------------------------------------------------------------------


def end_with_parent(grace_seconds: float = 0.0) -> None:
    """Have this process end when the one that spawned it is gone; a thread waits for that.

    A parent that is killed (`kill -9`, the kernel's memory killer) cannot stop its processes.
    `multiprocessing` gives each one the reading end of a pipe that its parent holds open. The
    process gets SIGTERM, and SIGKILL after `grace_seconds`.
    """
    threading.Thread(
        target=_leave_with_parent, args=(grace_seconds,), name="caesura-orphan", daemon=True
    ).start()


def _leave_with_parent(grace_seconds: float) -> None:
    # A spawned process has its name before it reads its arguments, and its parent afterwards.
    while (parent := multiprocessing.parent_process()) is None:
        time.sleep(LOOK_SECONDS)
    connection.wait([parent.sentinel])
    if grace_seconds:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
    os.kill(os.getpid(), signal.SIGKILL)
