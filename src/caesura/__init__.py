"""Caesura: an async agent runtime and scheduler plugin for tool-calling models, on stock vLLM.

What most programs need is exported here, and imported at first use:

    from caesura import Agent, tool
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caesura.distribution import __version__ as __version__

if TYPE_CHECKING:
    from caesura.runtime.errors import (
        CaesuraError,
        ContextOverflow,
        EngineFailed,
        InvalidOutput,
        LimitReached,
        RequestAborted,
        RequestFailed,
        UsageError,
    )
    from caesura.runtime.remote.engine import RemoteEngine
    from caesura.runtime.run.limits import Limits, Prices
    from caesura.runtime.sdk.agent import Agent
    from caesura.runtime.sdk.hooks import End, Hooks, Refuse
    from caesura.runtime.sdk.session import Session
    from caesura.runtime.sdk.sessions import Sessions
    from caesura.runtime.sdk.settings import Answer
    from caesura.runtime.testing import ScriptedEngine
    from caesura.scheduler.messages import Sampling
    from caesura.tools import Tool, tool
    from caesura.tools.run_view import Context

_HOME = {
    "Agent": "caesura.runtime.sdk.agent",
    "Answer": "caesura.runtime.sdk.settings",
    "CaesuraError": "caesura.runtime.errors",
    "Context": "caesura.tools.run_view",
    "ContextOverflow": "caesura.runtime.errors",
    "End": "caesura.runtime.sdk.hooks",
    "EngineFailed": "caesura.runtime.errors",
    "Hooks": "caesura.runtime.sdk.hooks",
    "InvalidOutput": "caesura.runtime.errors",
    "LimitReached": "caesura.runtime.errors",
    "Limits": "caesura.runtime.run.limits",
    "Prices": "caesura.runtime.run.limits",
    "Refuse": "caesura.runtime.sdk.hooks",
    "RemoteEngine": "caesura.runtime.remote.engine",
    "RequestAborted": "caesura.runtime.errors",
    "RequestFailed": "caesura.runtime.errors",
    "Sampling": "caesura.scheduler.messages",
    "ScriptedEngine": "caesura.runtime.testing",
    "Session": "caesura.runtime.sdk.session",
    "Sessions": "caesura.runtime.sdk.sessions",
    "Tool": "caesura.tools",
    "UsageError": "caesura.runtime.errors",
    "tool": "caesura.tools",
}

__all__ = [
    "Agent",
    "Answer",
    "CaesuraError",
    "Context",
    "ContextOverflow",
    "End",
    "EngineFailed",
    "Hooks",
    "InvalidOutput",
    "LimitReached",
    "Limits",
    "Prices",
    "Refuse",
    "RemoteEngine",
    "RequestAborted",
    "RequestFailed",
    "Sampling",
    "ScriptedEngine",
    "Session",
    "Sessions",
    "Tool",
    "UsageError",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name at first use: `import caesura` alone costs next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'caesura' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
