"""The port to vLLM 0.33, where it differs from 0.32."""

from caesura.scheduler.vllm.engine_state.v032 import EngineState032


class EngineState033(EngineState032):
    """Answers `EngineState` for a scheduler of vLLM 0.33."""

    def requeue_stopped(self) -> None:
        # vLLM itself queues sessions again that stop while they are preempted.
        self._displaced.clear()
