"""The end of an engine's process whose parent has ended in a way that left no time for it.

A server that is killed (`kill -9`, the kernel's memory killer) cannot stop its engine, which would
hold the memory that the next server needs. vLLM's own workers end with the engine's process.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import connection
from typing import Any

NAME = "EngineCore"
"""How the names of vLLM's engine processes begin."""
GRACE_SECONDS = 5.0
"""How long the process may take to end by itself."""
_WATCHED = threading.Event()


def end_with_parent() -> None:
    """Make this process end when the process that started it ends, if it is an engine's.

    `multiprocessing` gives each process the reading end of a pipe that its parent holds open.
    Only the first call has an effect.
    """
    parent = multiprocessing.parent_process()
    is_engine = multiprocessing.current_process().name.startswith(NAME)
    if parent is None or not is_engine or _WATCHED.is_set():
        return
    _WATCHED.set()
    threading.Thread(
        target=_end_after, args=(parent.sentinel,), name="caesura-orphan", daemon=True
    ).start()


def _end_after(sentinel: Any) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
