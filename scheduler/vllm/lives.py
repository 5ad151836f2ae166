"""The life of each session as rankings and predictors see it: when it came, what it has called.

A pause, a preemption or a follow-up in a new request does not begin a new life. What is seen of
segments, results and ends is what predictions are made from.
"""

from hashlib import blake2b

from vllm.v1.request import Request

from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.kv.pause_durations import Durations
from caesura.scheduler.admission.view import Admission
from caesura.scheduler.predict.forecast import About, Forecast, Predictor
from caesura.scheduler.vllm.engine_state.requests import arrival_of, ended_by_itself
from caesura.scheduler.vllm.life import Life
from caesura.scheduler.vllm.memory import PauseMemory
from caesura.scheduler.vllm.recorder import Recorder
from caesura.scheduler.vllm.wire import WATCH_KEY

MOST_CHARACTERS = 256
"""Of a kind's name; longer lists of tools are named by a hash."""


class Lives:
    """The sessions of one scheduler, by the id of the request that each of them is now."""

    def __init__(
        self,
        predictor: Predictor,
        memory: PauseMemory,
        admission: Admission,
        recorder: Recorder,
    ) -> None:
        """`memory` keeps what is learned of tools' pauses, which the predictor goes by."""
        self.predictor = predictor
        self.memory = memory
        self.admission = admission
        self._recorder = recorder
        self._of: dict[str, Life] = {}
        self.learns = True
        """Whether anything is learned; not from traffic that is nobody's."""

    def __getitem__(self, request_id: str) -> Life:
        return self._of[request_id]

    def arrived(self, request: Request, now: float) -> None:
        """A request has come that is not known yet."""
        self._of[request.request_id] = Life(
            request.request_id, arrival_of(request), _offered(request), now
        )

    def follows(self, request: Request, life: Life, tool: str | None, now: float) -> None:
        """It goes on with the session of one that ended with a call of this tool."""
        self._of[request.request_id] = life
        returned = request.num_tokens - life.context_tokens
        self.answered(request.request_id, tool, max(0, returned), now)

    def called(self, request: Request, tool: str | None) -> Life:
        """A segment has ended with a call."""
        life = self._of[request.request_id]
        self._segment(life, request)
        life.calls += 1
        life.started = True
        _now_of(life, tool)
        return life

    def answered(self, request_id: str, tool: str | None, tokens: int, now: float) -> None:
        """Its tool has returned so many tokens, and it queues."""
        if self.learns:
            self.predictor.observe_result(tool, tokens)
        self._of[request_id].queue(now)

    def ended(self, request: Request) -> None:
        """A request is about to be freed, and its session is over."""
        life = self._of.pop(request.request_id, None)
        if life is None:
            return
        if ended_by_itself(request):
            self._segment(life, request)
            for kind in sorted({life.kind, *life.kinds}) if self.learns else ():
                self.predictor.observe_end(kind, life.calls)
        else:
            life.given_tokens = life.decoded_tokens = 0  # it was cut off: no segment ended
        self._recorder.session_ended(request, life)

    def passes_on(self, request: Request, tool: str | None) -> Life:
        """A request is about to be freed that ended with a call: another may follow it."""
        life = self.called(request, tool)
        del self._of[request.request_id]
        return life

    # -- predictions -----------------------------------------------------------------------------

    def forecast(self, request: Request) -> Forecast:
        """Return what is expected of the request's session."""
        return self.predictor.forecast(self.about(request))

    def durations(self, request_id: str, tool: str | None, life: Life) -> Durations:
        """Return how long a pause that begins now is expected to last."""
        return self.predictor.pause(request_id, tool, life.calls)

    def expect_pause(self, tool: str, seconds: float) -> None:
        """Take a client's hint how long a tool's pauses last."""
        if self.learns:
            self.memory.predictor.expect(tool, seconds)

    def pause_ended(self, tool: str | None, seconds: float) -> None:
        """Learn how long a pause lasted."""
        if self.learns:
            self.memory.observe(tool, seconds)

    def about(self, request: Request) -> About:
        """Say what is known of a session, for a forecast."""
        life = self._of[request.request_id]
        return About(request.request_id, life.kind, life.calls, request.num_output_tokens)

    def _segment(self, life: Life, request: Request) -> None:
        decoded = request.num_output_tokens
        life.given_tokens = max(0, request.num_prompt_tokens - life.context_tokens)
        life.decoded_tokens, life.context_tokens = decoded, request.num_tokens
        if self.learns:
            self.predictor.observe_segment(life.kind, decoded)
            self.admission.observe(life.kind, decoded)


def _now_of(life: Life, tool: str | None) -> None:
    """Let a session be of its last tool's kind, which says more than what it is offered."""
    life.kinds.add(life.kind)
    if tool is not None:
        life.kind = tool


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
