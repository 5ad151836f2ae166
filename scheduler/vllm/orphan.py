"""The end of an engine's process whose parent has ended in a way that left no time for it.

A server that is killed (`kill -9`, the kernel's memory killer) cannot stop its engine, which would
hold the memory that the next server needs. vLLM's own workers end with the engine's process.

vLLM calls no hook of ours before its handshake, for which an orphan waits five minutes. But a
spawned process first reads its configuration, which names our scheduler by its class. So the
package of the schedulers calls this module as soon as it is imported.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import connection

NAME = "EngineCore"
"""How the names of vLLM's engine processes begin."""
GRACE_SECONDS = 5.0
"""How long the process may take to end by itself."""
LOOK_SECONDS = 0.05
"""How often a process that is being set up looks whether its parent is known."""
_WATCHED = threading.Event()


def end_with_parent() -> None:
    """Make this process end when the process that started it ends, if it is an engine's.

    `multiprocessing` gives each process the reading end of a pipe that its parent holds open.
    Only the first call has an effect.
    """
    is_engine = multiprocessing.current_process().name.startswith(NAME)
    if not is_engine or _WATCHED.is_set():
        return
    _WATCHED.set()
    threading.Thread(target=_end_with_parent, name="caesura-orphan", daemon=True).start()


def _end_with_parent() -> None:
    # A spawned process has its name before it reads its arguments, and its parent afterwards.
    while (parent := multiprocessing.parent_process()) is None:
        time.sleep(LOOK_SECONDS)
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
