"""The end of an engine's process whose parent has ended in a way that left no time for it.

A server that is killed (`kill -9`, the kernel's memory killer) cannot stop its engine, which would
hold the memory that the next server needs. vLLM's own workers end with the engine's process.

vLLM calls no hook of ours before its handshake, for which an orphan waits five minutes. But a
spawned process first reads its configuration, which names our scheduler by its class. So the
package of the schedulers calls this module as soon as it is imported.
"""

import multiprocessing
import threading

from caesura.processes.spawned import end_with_parent

NAME = "EngineCore"
"""How the names of vLLM's engine processes begin."""
GRACE_SECONDS = 5.0
"""How long the process may take to end by itself."""
_WATCHED = threading.Event()


def end_with_server() -> None:
    """Make this process end when the process that started it ends, if it is an engine's.

    Only the first call has an effect.
    """
    is_engine = multiprocessing.current_process().name.startswith(NAME)
    if not is_engine or _WATCHED.is_set():
        return
    _WATCHED.set()
    end_with_parent(GRACE_SECONDS)
