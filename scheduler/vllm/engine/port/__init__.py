"""The port to vLLM's engine: the only files that access private state of vLLM's scheduler.

`port` defines the interface; `v032` implements it for vLLM 0.32, and `v033` for 0.33. `blocks`,
`requests` and `grammars` read and change single blocks, requests and grammars. All other parts in
the engine's process use the port.
"""

from vllm import __version_tuple__ as vllm_version
from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.engine.port.blocks import Block, Blocks, Place
from caesura.scheduler.vllm.engine.port.engine_state import EngineState, Queue, StepWork, Stop
from caesura.scheduler.vllm.engine.port.v032 import EngineState032
from caesura.scheduler.vllm.engine.port.v033 import EngineState033

__all__ = [
    "Block",
    "Blocks",
    "EngineState",
    "Place",
    "Queue",
    "StepWork",
    "Stop",
    "engine_state_of",
]


def engine_state_of(scheduler: Scheduler) -> EngineState:
    """Return the port to a scheduler of the installed vLLM version."""
    return EngineState033(scheduler) if vllm_version[:2] >= (0, 33) else EngineState032(scheduler)
