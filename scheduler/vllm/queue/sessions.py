"""Sessions over all their requests, as rankings and predictors see them.

A pause, a preemption or a follow-up in a new request does not begin a new session. What is seen of
segments, results and ends is what predictions are made from.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from vllm.v1.request import Request

from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.admission.view import Admission
from caesura.scheduler.predict.forecast import About, Forecast, Predictor
from caesura.scheduler.rank.view import Score
from caesura.scheduler.vllm.engine_state.requests import arrival_of, ended_by_itself
from caesura.scheduler.vllm.history_file import HistoryFile
from caesura.scheduler.vllm.records.recorder import Recorder
from caesura.scheduler.vllm.wire import WATCH_KEY

MOST_CHARACTERS = 256
"""Of a kind's name; longer lists of tools are named by a hash."""


@dataclass(slots=True, eq=False)
class SessionState:
    """One session.

    `session_id` names it, by its first request, and `arrival` is when that came. `kind` is the tool
    that it called last, before that the tools that it is offered; `kinds` are all that it has had.
    Its last segment was given `given_tokens` and has decoded `decoded_tokens`; with them its
    context was `context_tokens` long. `queued_at` is when its present wait began, `passes` counts
    the steps in which others ran and it was left waiting, `overtaken` those of its present wait in
    which a request was admitted whose wait began later. `score` was made in the step `scored_in`,
    from the KV that `scored_for` names. `misfit` is what it needed in the step `misfit_in`, when
    there was no room: blocks, and tokens that need no computation.
    """

    session_id: str
    arrival: float
    kind: str
    queued_at: float
    kinds: set[str] = field(default_factory=set)
    calls: int = 0
    context_tokens: int = 0
    given_tokens: int = 0
    decoded_tokens: int = 0
    passes: int = 0
    overtaken: int = 0
    starved: bool = False
    started: bool = False
    score: Score | None = None
    scored_in: int = 0
    scored_for: Any = None
    misfit: tuple[int, int] | None = None
    misfit_in: int = 0

    def queue(self, now: float) -> None:
        """Reset the counts of a wait: the request was queued, or its KV changed while queued."""
        self.queued_at = now
        self.passes = self.overtaken = 0
        self.score = self.misfit = None


class Sessions:
    """The sessions of one scheduler, by the id of the request that each of them is now."""

    def __init__(
        self,
        predictor: Predictor,
        history_file: HistoryFile,
        admission: Admission,
        recorder: Recorder,
    ) -> None:
        """`history_file` keeps what is learned of tools' pauses, which the predictor goes by."""
        self.predictor = predictor
        self.history_file = history_file
        self.admission = admission
        self._recorder = recorder
        self._of: dict[str, SessionState] = {}
        self.learns = True
        """Whether anything is learned; not from the synthetic traffic of a calibration."""

    def __getitem__(self, request_id: str) -> SessionState:
        return self._of[request_id]

    def arrived(self, request: Request, now: float) -> None:
        """A request has come that is not known yet."""
        self._of[request.request_id] = SessionState(
            request.request_id, arrival_of(request), _offered(request), now
        )

    def follows(
        self, request: Request, session: SessionState, tool: str | None, now: float
    ) -> None:
        """It goes on with the session of one that ended with a call of this tool."""
        self._of[request.request_id] = session
        returned = request.num_tokens - session.context_tokens
        self.answered(request.request_id, tool, max(0, returned), now)

    def called(self, request: Request, tool: str | None) -> SessionState:
        """A segment has ended with a call."""
        session = self._of[request.request_id]
        self._segment(session, request)
        session.calls += 1
        session.started = True
        _now_of(session, tool)
        return session

    def answered(self, request_id: str, tool: str | None, tokens: int, now: float) -> None:
        """Its tool has returned so many tokens, and it queues."""
        if self.learns:
            self.predictor.observe_result(tool, tokens)
        self._of[request_id].queue(now)

    def ended(self, request: Request) -> None:
        """A request is about to be freed, and its session is over."""
        session = self._of.pop(request.request_id, None)
        if session is None:
            return
        if ended_by_itself(request):
            self._segment(session, request)
            for kind in sorted({session.kind, *session.kinds}) if self.learns else ():
                self.predictor.observe_end(kind, session.calls)
        else:
            session.given_tokens = session.decoded_tokens = 0  # it was cut off: no segment ended
        self._recorder.session_ended(request, session)

    def leaves(self, request: Request) -> None:
        """A request is about to be freed that is paused at a call: another may follow it."""
        del self._of[request.request_id]

    def passes_on(self, request: Request, tool: str | None) -> SessionState:
        """A request is about to be freed that ended with a call: another may follow it."""
        session = self.called(request, tool)
        del self._of[request.request_id]
        return session

    # -- predictions -----------------------------------------------------------------------------

    def forecast(self, request: Request) -> Forecast:
        """Return what is expected of the request's session."""
        return self.predictor.forecast(self.about(request))

    def durations(self, request_id: str, tool: str | None, session: SessionState) -> Durations:
        """Return how long a pause that begins now is expected to last."""
        return self.predictor.pause(request_id, tool, session.calls)

    def expect_pause(self, tool: str, seconds: float) -> None:
        """Take a client's hint how long a tool's pauses last."""
        if self.learns:
            self.history_file.predictor.expect(tool, seconds)

    def pause_ended(self, tool: str | None, seconds: float) -> None:
        """Learn how long a pause lasted."""
        if self.learns:
            self.history_file.observe(tool, seconds)

    def about(self, request: Request) -> About:
        """Say what is known of a session, for a forecast."""
        session = self._of[request.request_id]
        return About(request.request_id, session.kind, session.calls, request.num_output_tokens)

    def _segment(self, session: SessionState, request: Request) -> None:
        decoded = request.num_output_tokens
        session.given_tokens = max(0, request.num_prompt_tokens - session.context_tokens)
        session.decoded_tokens, session.context_tokens = decoded, request.num_tokens
        if self.learns:
            self.predictor.observe_segment(session.kind, decoded)
            self.admission.observe(session.kind, decoded)


def _now_of(session: SessionState, tool: str | None) -> None:
    """Let a session be of its last tool's kind, which says more than what it is offered."""
    session.kinds.add(session.kind)
    if tool is not None:
        session.kind = tool


def _offered(request: Request) -> str:
    """Name the tools that a request is offered: sessions with the same ones are compared."""
    params = request.sampling_params
    plan = (params.extra_args or {}).get(WATCH_KEY) if params is not None else None
    if plan is None:
        return ""
    try:
        kind = "+".join(sorted(WatchPlan.from_wire(plan).tools))
    except ValueError:
        return ""
    if len(kind) <= MOST_CHARACTERS:
        return kind
    return f"tools:{blake2b(kind.encode(errors='replace'), digest_size=8).hexdigest()}"
