"""Processes that simulate: their environment, and how they end.

They are started by `study/pool.py` for whole runs, and by `engine/replicas/shards.py` for replicas.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""The workers' environment: no result may depend on hashes, and each worker uses one core."""


@contextmanager
def children_of_this_run() -> Iterator[None]:
    """Start processes within that ignore Ctrl-C and whose results depend on no hashes."""
    with environment(ENVIRONMENT), deaf_children():
        yield


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes that start within; Python reads a hash seed at its start."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def deaf_children() -> Iterator[None]:
    """Block Ctrl-C in the processes that start within, which inherit the signal mask.

    A terminal sends Ctrl-C to all processes, but only the parent must act on it. The parent
    receives a pending one at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_a_worker() -> None:
    """Set up a process that simulates: it ends with its parent."""
    # vLLM warns about missing parts that only a real model needs.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this worker when its parent is gone; a killed parent cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
