"""The supervisor of the engine of `caesura serve`."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from caesura.runtime.cli.serve.lifetime import LifetimeOptions
from caesura.runtime.engine import Engine, VllmServer
from caesura.runtime.launch import ask, cause_of_death
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.server.load.queue_bound import QueueBound
from caesura.runtime.supervision.readiness import Readiness
from caesura.runtime.supervision.supervisor import (
    DEFAULT_RULES,
    EngineProcess,
    RecordedRestarts,
    Supervisor,
)


def supervisor_of(
    engine: Engine,
    vllm: VllmServer | None,
    readiness: Readiness,
    lifetime: LifetimeOptions,
    queue: QueueBound,
    recorder: Recorder | None,
) -> Supervisor:
    """Return the supervisor of an engine, of vLLM's application on it, and of its queue.

    It tells the recorder, if given, of restarts.
    """
    restarts = None if recorder is None else RecordedRestarts(recorder)

    def tell(what: str, why: str, seconds: float) -> None:
        if what in ("died", "hung"):
            queue.forget()
        if restarts is not None:
            restarts.tell(what, why, seconds)

    after: Sequence[Callable[[], Awaitable[None]]] = ()
    if vllm is not None and vllm.renew is not None:
        after = (vllm.renew,)
    return Supervisor(
        engine,
        readiness,
        rules=None if lifetime.no_restart else DEFAULT_RULES,
        process=EngineProcess(
            lifetime.engine_timeout,
            ask=partial(ask, engine),
            why_dead=partial(cause_of_death, engine),
            after_restart=after,
        ),
        tell=tell,
    )
