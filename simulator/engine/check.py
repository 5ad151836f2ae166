"""What must hold at every step, and what to say when a scheduler stands still."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm.engine_state import EngineState, engine_state_of
from caesura.scheduler.vllm.engine_state.blocks import real_ids
from caesura.scheduler.vllm.scheduler import PausingScheduler


def port_of(scheduler: Scheduler) -> EngineState:
    """Return the port to a scheduler, ours or vLLM's own."""
    if isinstance(scheduler, PausingScheduler):
        return scheduler.parts.port
    return engine_state_of(scheduler)


def stuck(scheduler: Scheduler, now: float) -> RuntimeError:
    """Say that a scheduler makes no progress, and in what state it is."""
    return RuntimeError(
        f"the scheduler makes no progress at second {now:.3f}: {state_of(scheduler)}"
    )


def state_of(scheduler: Scheduler) -> dict[str, Any]:
    """Return the state of a scheduler in numbers, ours or vLLM's own."""
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
    """Raise `RuntimeError` if a block belongs to nobody, or a request stands in no queue or two."""
    state = state_of(scheduler)
    if state["lost_blocks"]:
        raise RuntimeError(f"blocks belong to nobody: {state}")
    port = port_of(scheduler)
    queued = sorted(one.request_id for one in [*port.in_queue_order(), *port.running()])
    requests = [port.request(request_id) for request_id in port.request_ids()]
    alive = sorted(one.request_id for one in requests if one and not one.is_finished())
    if queued != alive:
        raise RuntimeError(f"a request is not in exactly one queue: {queued} and {alive}")
