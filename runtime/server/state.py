"""The state that the handlers of one application share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from caesura.runtime.engine import Engine
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.chat.gate import Gate
from caesura.runtime.server.metrics import Metrics
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.tracing import Tracing


@dataclass(frozen=True, slots=True)
class State:
    """The engine, the tools, and the application's settings and counters."""

    engine: Engine
    tools: Registry
    limits: Limits
    metrics: Metrics
    gate: Gate
    keep_alive_seconds: float
    started_at: int
    tracing: "Tracing | None" = None


STATE = web.AppKey("caesura", State)

OUTCOME = web.RequestKey("caesura_outcome", int)
"""The status under which a request counts, if it differs from the status that was sent."""
