"""Invariants of a scheduler at every step, and the error for one that makes no progress."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.engine.port import EngineState, engine_state_of
from caesura.scheduler.vllm.engine.port.blocks import real_ids
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler


def port_of(scheduler: Scheduler) -> EngineState:
    """Return the port to a scheduler, Caesura's or vLLM's own."""
    if isinstance(scheduler, PausingScheduler):
        return scheduler.parts.port
    return engine_state_of(scheduler)


def stuck(scheduler: Scheduler, now: float) -> RuntimeError:
    """Return the error for a scheduler that makes no progress, with the scheduler's state."""
    return RuntimeError(
        f"the scheduler makes no progress at second {now:.3f}: {state_of(scheduler)}"
    )


def state_of(scheduler: Scheduler) -> dict[str, Any]:
    """Return the state of a scheduler, Caesura's or vLLM's own, in numbers."""
    if isinstance(scheduler, PausingScheduler):
        return scheduler.parts.engine.snapshot()
    port = engine_state_of(scheduler)
    running, queued, paused = port.levels()
    owned: set[int] = set()
    for request_id in port.request_ids():
        owned |= real_ids(port.blocks_of(request_id))
    return {
        "running": running,
        "waiting": queued + paused,
        "blocks_total": port.blocks.total,
        "blocks_free": port.blocks.free(),
        "lost_blocks": port.blocks.total - port.blocks.free() - len(owned),
    }


def check_invariants(scheduler: Scheduler) -> None:
    """Raise `RuntimeError` for lost blocks, and for a request that is not in exactly one queue."""
    state = state_of(scheduler)
    if state["lost_blocks"]:
        raise RuntimeError(f"blocks are neither free nor held by a request: {state}")
    port = port_of(scheduler)
    queued = sorted(
        one.request_id for one in [*port.in_queue_order(), *port.parked(), *port.running()]
    )
    requests = [port.request(request_id) for request_id in port.request_ids()]
    alive = sorted(one.request_id for one in requests if one and not one.is_finished())
    if queued != alive:
        raise RuntimeError(
            f"a request is not in exactly one queue: queued {queued}, unfinished {alive}"
        )
