"""The door for all that happens to a session, across its requests.

A session continues over a pause, a preemption and a follow-up in a new request. Whatever happens to
it changes its stage, is learned and is recorded here. The predictor learns from its segments,
results, pauses and ends, and from what their tokens say: the words of calls, and whether a result
is an error.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.kv.pause_durations import Durations, ForecastTrust, PauseForecast
from caesura.scheduler.policy.admission import Admission
from caesura.scheduler.predict.facts import CallWords, Facts, WordHasher, tells_of_error
from caesura.scheduler.predict.forecast import About, Forecast, Predictor, forecasts_by_name
from caesura.scheduler.programs import Origin, Programs
from caesura.scheduler.prompt_lengths.process import Counts
from caesura.scheduler.vllm.engine.port.requests import arrival_of, ended_by_itself
from caesura.scheduler.vllm.engine.sessions.history_file import HistoryFile
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from caesura.scheduler.vllm.engine.sessions.served import (
    Event,
    PausedKV,
    Served,
    ServedRequests,
    SessionState,
)
from caesura.scheduler.vllm.wire import WATCH_KEY

MAX_KIND_CHARACTERS = 256
"""Maximum length of a kind's name; longer lists of tools are replaced by a hash."""


MAX_PROMPT_TOKENS = 512
"""The last tokens of a prompt from which its output's length is predicted (SSJF, section 3.2)."""


MAX_RESULT_TOKENS = 96
"""The number of a result's first tokens that are read for an error."""


class Prompts(Protocol):
    """Is told the prompts of new sessions, and predicts the lengths of their outputs elsewhere."""

    @property
    def counts(self) -> Counts:
        """Return the numbers of prompts asked about, answered and dropped."""
        ...

    def close(self) -> None:
        """End what predicts."""
        ...

    def ask(self, key: str, tokens: Sequence[int]) -> None:
        """Take the last tokens of a session's prompt, without waiting."""
        ...


class Contents(Protocol):
    """Reads calls and results; a simulation, which has no texts, knows them from its workload."""

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of the call of this text, which ends segment `calls`."""
        ...

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the result of the last of `calls` calls is an error.

        The result is the last `tokens` tokens of the request.
        """
        ...


class TokenContents:
    """Reads the contents of served sessions from their tokens."""

    def __init__(self, text_of: Callable[[Sequence[int]], bytes], salt: bytes) -> None:
        """Create it; `text_of` returns the text of tokens, and `salt` keys the hashes of words."""
        self._text_of = text_of
        self._hasher = WordHasher(salt)

    def words(self, session: str, calls: int, call: bytes) -> CallWords:
        """Return the hashed words of a call's text."""
        return self._hasher.words(call)

    def failed(self, session: str, calls: int, request: Request, tokens: int) -> bool:
        """Return whether the begin of the result reads like an error."""
        begin = request.num_tokens - tokens
        result = request.all_token_ids[begin : begin + MAX_RESULT_TOKENS]
        return tokens > 0 and tells_of_error(self._text_of(result))


class Sessions:
    """The sessions of one scheduler, by the id of each session's current request."""

    def __init__(
        self,
        served: ServedRequests,
        predictor: Predictor,
        history_file: HistoryFile,
        admission: Admission,
        recorder: Recorder,
        contents: Contents,
        prompts: Prompts | None = None,
    ) -> None:
        """Create it; `history_file` stores what is learned, and `contents` reads the tokens.

        `prompts` is asked about the prompt of every new session.
        """
        self._served = served
        self.predictor = predictor
        self.history_file = history_file
        self.admission = admission
        self._recorder = recorder
        self._contents = contents
        self._programs = Programs()
        self.prompts = prompts
        self.learns = True
        """Whether predictors learn; they ignore the synthetic traffic of a calibration."""

    def __getitem__(self, request_id: str) -> SessionState:
        return self._served[request_id].session

    # -- what happens ----------------------------------------------------------------------------

    def arrived(self, request: Request, now: float, followed: PausedKV | None = None) -> Served:
        """Begin a session with a new request, or continue the one of the KV that it follows.

        A session arrived when its program did.
        """
        origin = _origin(request)
        session = SessionState(
            session_id=request.request_id,
            arrival=self._programs.arrival(origin, arrival_of(request)),
            origin=origin,
            kind=_offered(request),
            queued_at=now,
            begun_at=now,
            facts=Facts(context_tokens=request.num_tokens),
        )
        served = self._served.arrive(request, session)
        if self.prompts is not None and self.learns and request.prompt_token_ids:
            last = request.prompt_token_ids[-MAX_PROMPT_TOKENS:]
            self.prompts.ask(request.request_id, last)
        if followed is not None:
            session = served.session = followed.session
            session.origin = origin
            self._served.follow(served, followed)
            session.take(Event.FOLLOW)
            returned = request.num_tokens - session.context_tokens
            self._answered(served, followed.tool, max(0, returned), now)
        self._recorder.arrived(request, session, followed)
        self._record_forecast(served)
        return served

    def admitted(self, output: SchedulerOutput) -> None:
        """Note the sessions whose requests join the batch with a step that was scheduled."""
        if output.scheduled_new_reqs:
            for new in output.scheduled_new_reqs:
                self._served[new.req_id].session.take(Event.ADMIT)
        if output.scheduled_cached_reqs.resumed_req_ids:
            for request_id in output.scheduled_cached_reqs.resumed_req_ids:
                self._served[request_id].session.take(Event.ADMIT)

    def preempted(self, request: Request, computed: int) -> None:
        """Note that running requests took the blocks of a request with `computed` tokens."""
        self[request.request_id].take(Event.PREEMPT)
        self._recorder.preempted(request, computed)

    def called(self, served: Served, tool: str | None, call: bytes) -> None:
        """End a segment with a call of `tool`, whose text is `call`; the request waits."""
        self._called(served, tool, call, Event.CALL)

    def returned(self, served: Served, tool: str | None, tokens: int, now: float) -> None:
        """Queue a paused request with its tool's result, the last `tokens` tokens."""
        served.session.take(Event.RETURN)
        self._answered(served, tool, tokens, now)
        self._recorder.returned(served.request)
        self._record_forecast(served)

    def continued(self, served: Served) -> None:
        """Queue a request whose next chunk had come before its turn ended."""
        served.session.take(Event.CONTINUE)
        self._recorder.returned(served.request)
        self._record_forecast(served)

    def left(self, served: Served) -> None:
        """Leave a session at its call, since its client closed the input; it may be followed."""
        served.session.take(Event.LEAVE)

    def passed_on(self, served: Served, tool: str | None, call: bytes) -> None:
        """End a segment and its request with a call; a follow-up may continue the session."""
        self._called(served, tool, call, Event.LEAVE)

    def ended(self, served: Served) -> None:
        """End the session of a request that is about to be freed."""
        request, session = served.request, served.session
        if ended_by_itself(request):
            session.take(Event.END)
            self._segment(session, request, called=False)
            if self.learns:
                about = self._about(session, session.decoded_tokens)
                self.predictor.observe_end(about, {session.kind, *session.kinds})
        else:
            session.take(Event.ABORT)
            self.predictor.observe_abort(session.session_id)
            session.given_tokens = session.decoded_tokens = 0  # aborted: no segment ended
        self._recorder.session_ended(request, session)

    def end(self, origin: Origin) -> frozenset[str]:
        """Take note that a client has ended a session; return its name, and those it started.

        Their requests that are under way go on, and nothing is kept of them for a follow-up.
        """
        names = self._programs.end(origin.tenant, origin.session)
        for served in self._served.values():
            if served.session.is_of(origin.tenant, names):
                served.session.final = True
        return names

    def forget(self, served: Served, retained: bool) -> None:
        """Forget a request that is about to be freed; `retained`: its KV waits for a follow-up."""
        if not retained:
            self._recorder.ended(served.request_id)
        self._served.forget(served)

    def close(self) -> None:
        """Save what was learned, and end what predicts from prompts."""
        self.history_file.save()
        if self.prompts is not None:
            self.prompts.close()

    def _called(self, served: Served, tool: str | None, call: bytes, event: Event) -> None:
        session = served.session
        session.take(event)
        self._segment(session, served.request, called=True)
        words = self._contents.words(session.session_id, session.calls, call)
        session.facts = session.facts.after_call(session.decoded_tokens, tool, words)
        session.calls += 1
        session.started = True
        _now_of(session, tool)

    def _answered(self, served: Served, tool: str | None, tokens: int, now: float) -> None:
        """Learn the `tokens` of a tool's result, the request's last ones; queue the session."""
        if self.learns:
            self.predictor.observe_result(tool, tokens)
        request, session = served.request, served.session
        failed = self._contents.failed(session.session_id, session.calls, request, tokens)
        seconds = max(0.0, now - session.begun_at)
        session.facts = session.facts.after_result(tokens, failed, request.num_tokens, seconds)
        session.queue(now)

    # -- predictions -----------------------------------------------------------------------------

    def forecast(self, request: Request) -> Forecast:
        """Return the forecast for the request's session."""
        return self.predictor.forecast(self.about(request))

    def _record_forecast(self, served: Served) -> None:
        """Record what the predictor and its parts expect of a session that was just queued."""
        if self._recorder.takes_forecasts:
            about = self.about(served.request)
            forecasts = forecasts_by_name(self.predictor, about)
            self._recorder.forecast(served.request, served.session, about, forecasts)

    def ends_next(self, session: SessionState) -> float:
        """Return the probability that a paused session ends with its next segment."""
        return self.predictor.forecast(self._about(session, 0)).ends_within(0)

    def durations(self, tool: str | None, session: SessionState) -> Durations:
        """Return the expected durations of a pause that begins now."""
        return self.predictor.pause(session.session_id, tool, session.calls)

    def expect_pause(self, tool: str, seconds: float) -> None:
        """Use a client's hint for the duration of a tool's pauses, in seconds."""
        if self.learns:
            self.history_file.predictor.expect(tool, seconds)

    def trust_for(self, tool: str | None) -> ForecastTrust:
        """Return how well forecasts of single calls have predicted the pauses of a tool."""
        return self.history_file.predictor.trust_for(tool)

    def pause_ended(
        self,
        session: SessionState,
        tool: str | None,
        seconds: float,
        forecast: PauseForecast | None = None,
    ) -> None:
        """Learn the duration of a session's pause in seconds, and how good its forecast was."""
        if self.learns:
            self.predictor.observe_pause(session.session_id, tool, seconds)
            if forecast is not None:
                self.history_file.predictor.observe_forecast(tool, forecast, seconds)
            self.history_file.save_if_due()

    def about(self, request: Request) -> About:
        """Return the known facts of a session, for a forecast."""
        return self._about(self[request.request_id], request.num_output_tokens)

    @staticmethod
    def _about(session: SessionState, decoded: int) -> About:
        facts = session.facts
        return About(session.session_id, session.kind, session.calls, decoded, facts)

    def _segment(self, session: SessionState, request: Request, *, called: bool) -> None:
        """Learn from the end of a segment: with a call, or with the session."""
        decoded = request.num_output_tokens
        session.given_tokens = max(0, request.num_prompt_tokens - session.context_tokens)
        session.decoded_tokens, session.context_tokens = decoded, request.num_tokens
        if self.learns:
            self.predictor.observe_segment(self._about(session, 0), decoded, called)
            self.admission.observe(session.kind, decoded)


def _now_of(session: SessionState, tool: str | None) -> None:
    """Set a session's kind to its last tool, which predicts more than the offered tools."""
    session.kinds.add(session.kind)
    if tool is not None:
        session.kind = tool


def _origin(request: Request) -> Origin:
    """Return where a request comes from, as the API process or a client of vLLM's says."""
    params = request.sampling_params
    return Origin.from_wire((params.extra_args or {}) if params is not None else {})


def _offered(request: Request) -> str:
    """Return a name for a request's offered tools, as the kind of its session."""
    params = request.sampling_params
    plan = (params.extra_args or {}).get(WATCH_KEY) if params is not None else None
    if plan is None:
        return ""
    try:
        kind = "+".join(sorted(WatchPlan.from_wire(plan).tools))
    except ValueError:
        return ""
    if len(kind) <= MAX_KIND_CHARACTERS:
        return kind
    return f"tools:{blake2b(kind.encode(errors='replace'), digest_size=8).hexdigest()}"
