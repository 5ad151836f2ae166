"""Processes that simulate: how they are spawned, set up and ended.

`study/pool.py` has whole runs made in a pool of them. `engine/replicas/shards.py` keeps replicas
in them, and asks by pipes: a pool's queues and threads would cost more than many an epoch.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from caesura.processes.spawned import (
    deaf_children,
    end_with_parent,
    names_program,
    program_runs_once,
)

ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""The workers' environment: no result may depend on hashes, and each worker uses one core."""


class Workers(SpawnContext):
    """How the processes of a run are made; it knows them, so that they can be ended.

    They import the main program only if the `work` that they will get names something there.
    """

    def __init__(self, work: object) -> None:
        super().__init__()
        self._needs_program = names_program(work)
        self._made: list[_Worker] = []

    def Process(self, *given: Any, **named: Any) -> "_Worker":  # type: ignore[override]  # noqa: N802
        """Make a process; `multiprocessing` gives the name."""
        process = _Worker(*given, **named)
        process.needs_program = self._needs_program
        self._made.append(process)
        return process

    def end(self) -> None:
        """End the processes, also those that are at work."""
        started = [process for process in self._made if process.pid is not None]
        for process in started:
            process.terminate()
        for process in started:
            process.join()


class _Worker(SpawnProcess):
    """A process that ignores Ctrl-C, whose results depend on no hashes."""

    needs_program = False

    def start(self) -> None:
        """Start it, and run the main program there only if it is needed."""
        once = nullcontext() if self.needs_program else program_runs_once()
        with _environment(), deaf_children(), once:
            super().start()


@contextmanager
def _environment() -> Iterator[None]:
    """Set the variables of the workers: Python reads a hash seed at its start."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def in_a_worker() -> None:
    """Set up a process that simulates: it ends with its parent."""
    # vLLM warns about missing parts that only a real model needs.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    end_with_parent()
