"""The port to vLLM 0.33, where it differs from 0.32."""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from caesura.scheduler.vllm.engine.port.v032 import EngineState032


class EngineState033(EngineState032):
    """Answers `EngineState` for a scheduler of vLLM 0.33."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._to_park: list[Request] = []

    def park(self, request: Request) -> None:
        # vLLM queues the sessions that stopped only when it has handled all of a step's tokens.
        self._to_park.append(request)

    def requeue_stopped(self) -> None:
        # vLLM itself queues sessions again that stop while they are preempted.
        self._displaced.clear()
        for request in self._to_park:
            super().park(request)
        self._to_park.clear()
