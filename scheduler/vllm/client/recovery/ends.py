"""How the processes of an engine ended."""

import signal
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM


def ends_of(llm: AsyncLLM) -> str:
    """Return how the ended processes of vLLM's client ended; empty if none is known to have."""
    resources = getattr(llm.engine_core, "resources", None)
    manager: Any = getattr(resources, "engine_manager", None)
    if not hasattr(manager, "finished_procs"):  # on Ray, actors have no exit codes
        return ""
    ended: dict[str, int] = manager.finished_procs()
    return "; ".join(f"the process {name} {_said(code)}" for name, code in ended.items())


def _said(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
