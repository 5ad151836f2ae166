"""What happens in an engine, event by event: the interface of those who write it down."""

from typing import TYPE_CHECKING

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.kv.views import PausedKVView, StepView
from caesura.scheduler.vllm.engine_state import StepWork

if TYPE_CHECKING:
    from caesura.scheduler.vllm.paused.paused_kv import PausedKV
    from caesura.scheduler.vllm.queue.sessions import SessionState
    from caesura.scheduler.vllm.records.queue_delays import Lack


class Recorder:
    """Takes every event and writes nothing down: the null object, where records are off."""

    writes = False
    """Whether records are written: then it pays to compute what only they tell."""

    @property
    def pending(self) -> bool:
        """Whether something has happened, with no step under way that would take it along."""
        return False

    # -- requests --------------------------------------------------------------------------------

    def arrived(
        self, request: Request, session: "SessionState", followed: "PausedKV | None"
    ) -> None:
        """A request is new; `followed` is the kept KV of the one that it follows."""

    def returned(self, request: Request) -> None:
        """A request has got its next chunk."""

    def preempted(self, request: Request, computed: int) -> None:
        """Running requests took the blocks of one that had computed so many tokens."""

    def looked(self, lacks: list["Lack"], stop: str) -> None:
        """The step that is made looked at some requests in vain; `stop`: why not at the rest."""

    def ended(self, request_id: str) -> None:
        """A request is over."""

    def session_ended(self, request: Request, session: "SessionState") -> None:
        """A session is over with this request."""

    # -- pauses ----------------------------------------------------------------------------------

    def paused(self, kv: "PausedKV", view: PausedKVView, step: StepView, handling: str) -> None:
        """A pause has begun, and this is what its handling was shown."""

    def kv_changed(self, kv: "PausedKV") -> None:
        """The KV of a paused request was counted again."""

    def kv_lost(self) -> None:
        """KV turned out not to be there: requests that decode may have to prefill again."""

    def closed(self, kv: "PausedKV", report: ResumeReport | None, now: float) -> None:
        """A pause is over; no `report`: the request never came back."""

    # -- steps -----------------------------------------------------------------------------------

    def scheduled(self, output: SchedulerOutput, work: StepWork, recomputed: int) -> None:
        """A step was made; so many of its tokens had been computed before."""

    def computed(self, seconds: float, in_flight: int, now: float) -> None:
        """The oldest step in flight is over, and so many were made behind it."""

    def flush(self) -> None:
        """Send off all that there is, as at the end of a run."""

    def suspend(self) -> None:
        """Write nothing from now on: what comes is a measurement. No step may be in flight."""

    def resume(self) -> None:
        """Write again."""
