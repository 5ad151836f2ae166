"""The kinds of records. Writers construct these types, and `reading.parse` returns them.

`describe` generates the page's `record-types.ts` and the tables of docs/reference/records.md from
the annotations. Times are Unix seconds (a simulation begins at 0), sizes are blocks of KV cache on
the device. A field without a default is in every record of its kind. Older files may lack the
others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from caesura.scheduler.records.parts import (
    NO_FEATURES,
    NO_INPUTS,
    NO_PRICES,
    NOTHING_LACKED,
    About,
    DecisionRow,
    FeatureRecord,
    LackedSteps,
    OpeningInputs,
    PredictionRecord,
    PriceRecord,
    Record,
    SpanEvent,
    WantedRow,
)
from caesura.scheduler.records.plans import PlanRecord, ProgressRecord, ReplicaRecord, StageRecord

Numbers = list[float]
Texts = list[str]
RequestId = Annotated[str, About("the request's id in the engine", read_by="page, export, runs")]
SessionId = Annotated[
    str, About("the id of the session's first request", read_by="page, runs, replay")
]

Tool = Annotated[str | None, About("the tool's name, if known", read_by="page, replay")]
Arrival = Annotated[float | None, About("when the session arrived", "s", read_by="page, replay")]
Given = Annotated[
    int,
    About("tokens of the segment's prompt or tool result", "tokens", read_by="page, replay"),
]

Decoded = Annotated[int, About("tokens that the segment decoded", "tokens", read_by="page, replay")]
Context = Annotated[int, About("the request's context", "tokens")]
Resident = Annotated[int, About("blocks that only this request held, in all groups", "blocks")]
Predicted = Annotated[float | None, About("the expected duration of the pause", "s")]


@dataclass(frozen=True, slots=True)
class ForecastRecord(Record):
    """A session was queued for a segment: what each predictor expected of it."""

    kind: ClassVar[str] = "forecast"
    set_by: ClassVar[str] = "the scheduler, when a session arrives and when it returns from a call"

    request: RequestId
    at: Annotated[float, About("when the segment was queued", "s", read_by="page, runs, metrics")]
    session: SessionId = ""
    calls: Annotated[int, About("calls so far", "calls", read_by="page, runs, metrics, replay")] = 0
    compared_with: Annotated[
        str,
        About(
            "the sessions of the same kind: by the last tool, or by the offered tools", read_by=""
        ),
    ] = ""
    features: Annotated[FeatureRecord, About("what the predictors knew of the session")] = (
        NO_FEATURES
    )
    predictions: Annotated[
        tuple[PredictionRecord, ...],
        About("a row for the predictor in use, and one for each part of a mixture"),
    ] = ()


@dataclass(frozen=True, slots=True)
class OpeningRecord(Record):
    """A pause has begun: the inputs of the decision, and the price of each alternative."""

    kind: ClassVar[str] = "opening"
    set_by: ClassVar[str] = "the scheduler, when a request pauses"

    request: RequestId
    at: Annotated[float, About("when the pause began", "s", read_by="page, export, runs")]
    session: SessionId = ""
    tool: Tool = None
    person: Annotated[
        bool, About("whether the call waits for a person", read_by="page, export")
    ] = False
    context_tokens: Context = 0
    blocks: Resident = 0
    bytes: Annotated[
        int | None,
        About("size of these blocks on all devices, if known", "bytes", read_by="page, runs"),
    ] = None
    predicted_seconds: Predicted = None
    deadline_seconds: Annotated[
        float | None, About("the longest that the pause may last, if known", "s")
    ] = None
    handling: Annotated[str, About("the policy that decides")] = ""
    prices: Annotated[PriceRecord, About("the expected waste of each alternative")] = NO_PRICES
    inputs: Annotated[OpeningInputs, About("the inputs of the prices")] = NO_INPUTS


@dataclass(frozen=True, slots=True)
class PauseRecord(Record):
    """A pause has ended: the decisions, their cost, and the regret in hindsight."""

    kind: ClassVar[str] = "pause"
    set_by: ClassVar[str] = "the scheduler, when a paused request runs again or is given up"

    request: RequestId
    at: Annotated[float, About("when the pause began", "s", read_by="page, export, runs, replay")]
    session: SessionId = ""
    arrival: Arrival = None
    given_tokens: Given = 0
    decoded_tokens: Decoded = 0
    tool: Tool = None
    context_tokens: Context = 0
    blocks: Resident = 0
    predicted_seconds: Predicted = None
    prices: Annotated[PriceRecord, About("the prices of its opening")] = NO_PRICES
    decisions: Annotated[
        tuple[DecisionRow, ...],
        About(
            "every release of blocks, with the prices at that moment",
            read_by="page, export, metrics",
        ),
    ] = ()
    outcome: Annotated[
        str,
        About(
            "`resumed`, `followed` by a new request after a client's call, or `ended`",
            read_by="page, export, replay",
        ),
    ] = "ended"
    handling: Annotated[
        str,
        About(
            "what happened to the KV: `preserve`, `discard`, `swap`; `none` unless it resumed",
            read_by="page, export, metrics",
        ),
    ] = "none"
    pause_seconds: Annotated[
        float | None,
        About("time until the result came", "s", read_by="page, export, replay, metrics"),
    ] = None
    queue_seconds: Annotated[
        float, About("time from the result until it ran", "s", read_by="page, export")
    ] = 0.0
    loaded_tokens: Annotated[int, About("context loaded from the host", "tokens")] = 0
    recomputed_tokens: Annotated[int, About("context computed again", "tokens")] = 0
    cost: Annotated[
        float | None,
        About(
            "what it cost others and itself: held blocks as far as others wanted them, what was "
            "recomputed, and loading",
            "block-seconds",
        ),
    ] = None
    queue_cost: Annotated[
        float | None,
        About(
            "the part of `cost` for blocks that it held while it queued behind its result. A "
            "record without it has a cost and a regret by an older measure",
            "block-seconds",
            read_by="page, runs",
        ),
    ] = None
    work_cost: Annotated[
        float | None,
        About(
            "the part of `cost` for loading and recomputing", "block-seconds", read_by="page, runs"
        ),
    ] = None
    hindsight: Annotated[
        PriceRecord | None,
        About("what each alternative would have cost; null if keeping cost nothing"),
    ] = None
    regret: Annotated[
        float | None,
        About(
            "`cost` minus the cheapest of `hindsight`; null if keeping cost nothing",
            "block-seconds",
            read_by="page, runs, export, metrics",
        ),
    ] = None
    wanted_seconds: Annotated[
        float | None,
        About(
            "time of the pause and of its queue in which other requests lacked blocks, or would "
            "have without those that paused requests gave up",
            "s",
            read_by="page, runs",
        ),
    ] = None
    wanted_requests: Annotated[
        int | None,
        About("other requests that lacked blocks meanwhile", "requests", read_by="page, runs"),
    ] = None
    wanted_by: Annotated[
        tuple[WantedRow, ...],
        About("up to 5 of these, longest first", read_by="page, runs"),
    ] = ()


@dataclass(frozen=True, slots=True)
class SessionRecord(Record):
    """A session has ended."""

    kind: ClassVar[str] = "session"
    set_by: ClassVar[str] = "the scheduler, when a session's last request ends"

    request: RequestId
    at: Annotated[float, About("when the session ended", "s", read_by="page, runs, replay")]
    session: SessionId = ""
    arrival: Arrival = None
    given_tokens: Given = 0
    decoded_tokens: Decoded = 0
    calls: Annotated[int, About("calls of the session", "calls", read_by="page, replay")] = 0
    most_tokens: Annotated[
        int | None, About("the last request's `max_tokens`", "tokens", read_by="replay")
    ] = None
    outcome: Annotated[str, About("vLLM's finish reason", read_by="page, runs")] = ""


@dataclass(frozen=True, slots=True)
class LanesRecord(Record):
    """State changes of requests: columns of equal length, in the order of time."""

    kind: ClassVar[str] = "lanes"
    set_by: ClassVar[str] = "the scheduler, at every change of a request's state"

    request: Annotated[Texts, About("the request of each row", read_by="page, export")]
    state: Annotated[Texts, About("the state that it entered", read_by="page, export")]
    at: Annotated[Numbers, About("when it entered the state", "s", read_by="page, export")]
    blocks: Annotated[
        Numbers, About("device blocks that it holds", "blocks", read_by="page, export")
    ] = field(default_factory=list)
    host: Annotated[
        Numbers, About("blocks of its context on the host only", "blocks", read_by="page, export")
    ] = field(default_factory=list)
    tokens: Annotated[Numbers, About("its context", "tokens", read_by="page, export")] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True)
class WaitRecord(Record):
    """A request that was passed over in at least two steps has stopped waiting."""

    kind: ClassVar[str] = "wait"
    set_by: ClassVar[str] = "the scheduler, when a wait of at least two steps ends"

    request: RequestId
    since: Annotated[float, About("when the wait began", "s")]
    until: Annotated[float, About("when the wait ended", "s", read_by="page, export")]
    steps: Annotated[int, About("steps that ran without it", "steps")] = 0
    lacked: Annotated[
        LackedSteps, About("steps by the resource that it lacked", read_by="page, export")
    ] = NOTHING_LACKED
    needed_blocks: Annotated[
        int | None, About("blocks that it needed when it last did not fit", "blocks")
    ] = None
    free_blocks: Annotated[int | None, About("blocks that were free then", "blocks")] = None
    overtaken: Annotated[int, About("steps in which a request behind it was admitted", "steps")] = 0
    behind: Annotated[
        str | None, About("the request that it stood behind when it last lacked its turn")
    ] = None
    admitted_most: Annotated[
        int | None,
        About("requests that ran when the admission policy last refused it", "requests"),
    ] = None
    after: Annotated[str, About("`fresh`, `tool` or `preempted`")] = ""


@dataclass(frozen=True, slots=True)
class StepsRecord(Record):
    """Up to 64 steps with a forward pass: columns of equal length, in the order of time."""

    kind: ClassVar[str] = "steps"
    set_by: ClassVar[str] = "the scheduler, twice a second while steps run"

    at: Annotated[Numbers, About("when the step was scheduled", "s", read_by="page, export")]
    seconds: Annotated[Numbers, About("how long it took", "s", read_by="page, export")]
    running: Annotated[Numbers, About("requests in the step", "requests")] = field(
        default_factory=list
    )
    paused: Annotated[Numbers, About("paused requests", "requests")] = field(default_factory=list)
    decode_tokens: Annotated[Numbers, About("decoded", "tokens", read_by="page, metrics")] = field(
        default_factory=list
    )
    prefill_tokens: Annotated[
        Numbers, About("computed for the first time", "tokens", read_by="page, metrics")
    ] = field(default_factory=list)
    recompute_tokens: Annotated[
        Numbers, About("computed again after a pause", "tokens", read_by="page, metrics")
    ] = field(default_factory=list)
    budget_blocks: Annotated[Numbers, About("what the link may carry", "blocks")] = field(
        default_factory=list
    )
    saved_blocks: Annotated[
        Numbers, About("copies ordered to the host", "blocks", read_by="page, metrics")
    ] = field(default_factory=list)
    loaded_blocks: Annotated[
        Numbers, About("copies ordered from the host", "blocks", read_by="page, metrics")
    ] = field(default_factory=list)
    running_blocks: Annotated[
        Numbers, About("held by running requests", "blocks", read_by="page, metrics")
    ] = field(default_factory=list)
    paused_blocks: Annotated[
        Numbers, About("held by paused requests", "blocks", read_by="page, metrics")
    ] = field(default_factory=list)
    free_blocks: Annotated[Numbers, About("free", "blocks", read_by="page, metrics")] = field(
        default_factory=list
    )
    waiting: Annotated[Numbers, About("requests in the queue", "requests")] = field(
        default_factory=list
    )
    cached_blocks: Annotated[
        Numbers, About("free blocks that the prefix cache still finds (an estimate)", "blocks")
    ] = field(default_factory=list)
    host_blocks: Annotated[
        Numbers, About("host blocks that hold a copy or are being written", "blocks")
    ] = field(default_factory=list)
    budget_tokens: Annotated[
        Numbers,
        About("what the step could take: vLLM's limit, or ours beside decoding", "tokens"),
    ] = field(default_factory=list)


_READ = "export, metrics"


@dataclass(frozen=True, slots=True)
class RestRecord(Record):
    """No request runs any more: who holds the blocks that the last step has left."""

    kind: ClassVar[str] = "rest"
    set_by: ClassVar[str] = "the scheduler, when the blocks differ from the last that it told"

    at: Annotated[float, About("when it was looked at", "s", read_by="export")]
    running_blocks: Annotated[
        int, About("held by requests that load or are about to run", "blocks", read_by=_READ)
    ] = 0
    paused_blocks: Annotated[int, About("held by paused requests", "blocks", read_by=_READ)] = 0
    free_blocks: Annotated[int, About("free", "blocks", read_by=_READ)] = 0


@dataclass(frozen=True, slots=True)
class RestartRecord(Record):
    """The engine's process died or hung. What came of it is a later record with the same `at`."""

    kind: ClassVar[str] = "restart"
    set_by: ClassVar[str] = (
        "the server, when it finds the engine dead, when a start fails, and when the engine takes "
        "work again or is given up"
    )

    at: Annotated[
        float,
        About(
            "when it died; of a hung one, when it began to be silent", "s", read_by="page, export"
        ),
    ]
    why: Annotated[
        str, About("the reason, as far as it is known", read_by="page, export, runs")
    ] = ""
    attempts: Annotated[
        int, About("starts of the engine, failed ones too", read_by="page, export, runs")
    ] = 0
    seconds: Annotated[
        float | None,
        About("until it took work; null: it has not", "s", read_by="page, export, runs"),
    ] = None
    state: Annotated[
        str,
        About(
            "`down`, `restarted` or `given up`; empty in older records, which were written once",
            read_by="page, export, runs",
        ),
    ] = ""

    @property
    def outcome(self) -> str:
        """Return the state, also of an older record."""
        return self.state or ("given up" if self.seconds is None else "restarted")


@dataclass(frozen=True, slots=True)
class ContinuedRecord(Record):
    """A session's request was lost with its engine, and the session goes on in another one."""

    kind: ClassVar[str] = "continued"
    set_by: ClassVar[str] = "the session, when it sends its tokens to the next engine"

    request: Annotated[str, About("the id of the new request, without what the engine appends")]
    lost: Annotated[str, About("the id of the lost request, without what the engine appends")]
    at: Annotated[float, About("when the new request was sent", "s")]
    sent: Annotated[
        float | None,
        About("when the lost request was sent, also one that a dead engine never had", "s"),
    ] = None


@dataclass(frozen=True, slots=True)
class SpanRecord(Record):
    """An OpenTelemetry span of a run, a turn or a call."""

    kind: ClassVar[str] = "span"
    set_by: ClassVar[str] = "the runtime, when a span begins and when it ends"

    trace: Annotated[str, About("the trace's id", read_by="page, export, runs")]
    span: Annotated[str, About("the span's id", read_by="page, export, runs")]
    name: Annotated[str, About("the span's name", read_by="page, export, runs")]
    start: Annotated[float, About("when it began", "s", read_by="page, export, runs")]
    end: Annotated[
        float | None,
        About("when it ended; null while it is open", "s", read_by="page, export, runs"),
    ]
    parent: Annotated[str | None, About("the parent span's id", read_by="page, export, runs")] = (
        None
    )
    status: Annotated[str, About("`ok`, `error` or `unset`", read_by="page, export, runs")] = (
        "unset"
    )
    message: Annotated[str, About("the error's message", read_by="page, export, runs")] = ""
    attributes: Annotated[
        Mapping[str, Any],
        About("OpenTelemetry attributes", read_by="page, export, runs"),
    ] = field(default_factory=dict)
    events: Annotated[
        tuple[SpanEvent, ...], About("events within the span", read_by="page, export")
    ] = ()


@dataclass(frozen=True, slots=True)
class HttpRecord(Record):
    """A request to the server was answered, refused or left by its client."""

    kind: ClassVar[str] = "http"
    set_by: ClassVar[str] = "the server, when a request is over that asked for work or was refused"

    at: Annotated[float, About("when it was over", "s", read_by="page, export, runs")]
    route: Annotated[str, About("the path of its route; `unknown` without one", read_by="page")]
    status: Annotated[
        int, About("the status of its answer; 499 if its client left", read_by="page, runs")
    ]
    seconds: Annotated[float, About("how long it took; of several, the longest", "s")] = 0.0
    code: Annotated[str, About("the error's code, if it has one", read_by="page, runs")] = ""
    answer: Annotated[
        str,
        About(
            "the id of the answer, which its run has as `gen_ai.response.id`", read_by="page, runs"
        ),
    ] = ""
    count: Annotated[
        int,
        About("requests that it stands for: equal refusals within a second", "requests"),
    ] = 1
    tenant: Annotated[str, About("the name of its API key, if there are keys")] = ""
    request_id: Annotated[
        str, About("the `X-Request-Id` of its answer; of several, the first one's")
    ] = ""


@dataclass(frozen=True, slots=True)
class GapRecord(Record):
    """Records before this one were lost."""

    kind: ClassVar[str] = "gap"
    set_by: ClassVar[str] = "the recorder, when it could not keep up or the disk was full"

    at: Annotated[float, About("when the loss was noticed", "s", read_by="page, export")]
    lost: Annotated[int, About("records that were lost", "records", read_by="page, export")] = 0
    why: Annotated[str, About("why they were lost", read_by="page, export")] = ""


KINDS: Mapping[str, type[Record]] = {
    each.kind: each
    for each in (
        ForecastRecord,
        OpeningRecord,
        PauseRecord,
        SessionRecord,
        LanesRecord,
        WaitRecord,
        StepsRecord,
        RestRecord,
        RestartRecord,
        ContinuedRecord,
        SpanRecord,
        HttpRecord,
        GapRecord,
        PlanRecord,
        StageRecord,
        ReplicaRecord,
        ProgressRecord,
    )
}
