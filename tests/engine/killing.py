"""Killing an engine's process, as the kernel does for lack of memory."""

import os
import signal
from typing import Any

from caesura.scheduler.vllm.client.engine import VllmEngine


def kill(engine: VllmEngine) -> None:
    """Kill the processes of an engine, and wait until they are gone."""
    core: Any = engine.llm.engine_core
    for process in core.resources.engine_manager.processes:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
