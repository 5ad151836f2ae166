"""The states of a paused request, and the legal transitions between them.

    running ──PAUSE──> paused ──RETURN──> resuming ──ADMIT──> running
       │                 │                    │
       └──── CLOSE ──────┴────── CLOSE ───────┴──> closed

Besides, the request's KV cache is held or dropped. RECLAIM can take it from a paused or resuming
request at any step, since paused KV is never locked. A request whose KV was dropped is in no state
of its own: the engine recomputes what the prefix cache no longer has.
"""

from dataclasses import dataclass
from enum import Enum

from caesura.intercept.calls.events import ResumeReport


class State(Enum):
    """The state of a request; vLLM owns the request while it is `running`."""

    RUNNING = "running"
    PAUSED = "paused"
    RESUMING = "resuming"
    CLOSED = "closed"


class Step(Enum):
    """An event that changes a request's state or its KV cache."""

    PAUSE = "pause"  # the token that completes a call was decoded
    RETURN = "return"  # the tool's result was appended
    ADMIT = "admit"  # the engine scheduled it again
    RECLAIM = "reclaim"  # its KV cache was taken
    CLOSE = "close"  # finished or aborted


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.RUNNING, Step.PAUSE): State.PAUSED,
    (State.PAUSED, Step.RETURN): State.RESUMING,
    (State.RESUMING, Step.ADMIT): State.RUNNING,
    (State.PAUSED, Step.RECLAIM): State.PAUSED,
    (State.RESUMING, Step.RECLAIM): State.RESUMING,
    (State.RUNNING, Step.CLOSE): State.CLOSED,
    (State.PAUSED, Step.CLOSE): State.CLOSED,
    (State.RESUMING, Step.CLOSE): State.CLOSED,
}


class IllegalStep(Exception):
    """A step that `TRANSITIONS` does not have: a bug in the caller."""

    def __init__(self, request_id: str, state: State, step: Step) -> None:
        super().__init__(f"request {request_id}: no step {step.value!r} from state {state.value!r}")


@dataclass(slots=True)
class Pause:
    """One pause of one request, from the call to the step that resumes it.

    Times are seconds of the owner's clock. `frontier_tokens` is the number of tokens in the KV
    cache when the request paused; the last sampled token is not among them. `deadline_seconds` is
    the longest the pause may last, None if unknown.
    """

    request_id: str
    paused_at: float
    frontier_tokens: int
    state: State = State.RUNNING
    held: bool = True
    returned_at: float = 0.0
    deadline_seconds: float | None = None

    def take(self, step: Step, now: float = 0.0) -> None:
        """Apply a step; raises `IllegalStep` if `TRANSITIONS` has none from this state."""
        following = TRANSITIONS.get((self.state, step))
        if following is None or (step is Step.RECLAIM and not self.held):
            raise IllegalStep(self.request_id, self.state, step)
        self.state = following
        if step is Step.RECLAIM:
            self.held = False
        elif step is Step.RETURN:
            self.returned_at = now

    def report(
        self,
        now: float,
        context_tokens: int,
        cached_tokens: int,
        loaded_tokens: int = 0,
        copied: bool = False,
    ) -> ResumeReport:
        """Return the report of the pause, at the step that resumes it.

        `copied`: the released blocks had been copied first, even if no copy was loaded.
        """
        released = "swap" if loaded_tokens or copied else "discard"
        handling = "preserve" if self.held else released
        return ResumeReport(
            handling=handling,
            pause_seconds=self.returned_at - self.paused_at,
            queue_seconds=now - self.returned_at,
            context_tokens=context_tokens,
            cached_tokens=cached_tokens,
            loaded_tokens=loaded_tokens,
        )
