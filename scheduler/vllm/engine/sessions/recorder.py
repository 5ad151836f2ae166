"""The interface of recorders, which receive the engine's events one by one."""

from collections.abc import Mapping
from typing import NamedTuple

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.views import PausedKVView, StepView
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.vllm.engine.port import StepWork
from caesura.scheduler.vllm.engine.sessions.served import PausedKV, SessionState


class Lack(NamedTuple):
    """What an examined request lacked; for blocks also the `needed` and the `free` number.

    For admission, `batch` is the number of requests that ran. `what` is empty if the request should
    fit; vLLM may still leave it waiting.
    """

    request_id: str
    what: str
    needed: int | None = None
    free: int | None = None
    batch: int | None = None


class Recorder:
    """Receives every event and records nothing: the null object, used where records are off."""

    writes = False
    """Whether records are written, so that callers compute values that only records need."""

    takes_forecasts = False
    """Whether it records what predictors expect, so that callers ask them."""

    @property
    def pending(self) -> bool:
        """Whether there are records to send, so that an idle engine must take a step."""
        return False

    # -- requests --------------------------------------------------------------------------------

    def arrived(self, request: Request, session: SessionState, followed: PausedKV | None) -> None:
        """Record a new request; `followed` is the retained KV of the request that it follows."""

    def returned(self, request: Request) -> None:
        """Record that a paused request received its next chunk."""

    def forecast(
        self,
        request: Request,
        session: SessionState,
        about: About,
        forecasts: Mapping[str, Forecast],
    ) -> None:
        """Record what predictors, by their names, expect of a session that was just queued."""

    def preempted(self, request: Request, computed: int) -> None:
        """Record that a request with `computed` tokens lost its blocks to running requests."""

    def looked(self, lacks: list[Lack], stop: str, front: str = "") -> None:
        """Record what the examined requests lacked; `stop` is why the others were not examined.

        `front` is the request that the others must not overtake, where that is the reason.
        """

    def ended(self, request_id: str) -> None:
        """Record that a request has ended."""

    def session_ended(self, request: Request, session: SessionState) -> None:
        """Record that a session has ended with this request."""

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, kv: PausedKV, view: PausedKVView, step: StepView, handling: str) -> None:
        """Record that a pause began, with the views that its handling received."""

    def kv_changed(self, kv: PausedKV) -> None:
        """Record the new block counts of a paused request's KV."""

    def kv_lost(self) -> None:
        """Record that a load failed, so that decoding requests may have to prefill again."""

    def closed(self, kv: PausedKV, report: ResumeReport | None, now: float) -> None:
        """Record that a pause has ended; `report` is None if the request never resumed."""

    # -- steps -----------------------------------------------------------------------------------

    def scheduled(
        self, output: SchedulerOutput, work: StepWork, recomputed: int, most_tokens: int
    ) -> None:
        """Record a scheduled step that could take `most_tokens`.

        Of its tokens, `recomputed` had been computed before.
        """

    def computed(self, seconds: float, in_flight: int, now: float) -> None:
        """Record the time of the oldest step in flight; `in_flight` steps follow it."""

    def flush(self) -> None:
        """Send all records, for example at the end of a run."""

    def suspend(self) -> None:
        """Stop writing, for the duration of a measurement. No step may be in flight."""

    def resume(self) -> None:
        """Start writing again after `suspend`."""
