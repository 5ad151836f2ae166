"""Parts of records: prices, inputs, decisions, lacked resources and events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, ClassVar, NamedTuple


class About(NamedTuple):
    """The meaning of a field, its unit, and the readers that use it."""

    says: str
    unit: str = ""
    read_by: str = "page"


class Record:
    """A record of one `kind`; `set_by` names the module that writes it."""

    __slots__ = ()
    kind: ClassVar[str]
    set_by: ClassVar[str]

    def entry(self) -> dict[str, Any]:
        """Return the record as plain data for JSON; columns are shared, not copied."""
        return {"kind": self.kind, **plain_fields(self)}


def plain_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record or a part by name, with nested parts as plain data."""
    return {name: _plain(getattr(record, name)) for name in _names(type(record))}


def _plain(value: Any) -> Any:
    if type(value) is LackedSteps:  # most of its counts are zero, which is their default
        return {name: steps for name, steps in plain_fields(value).items() if steps}
    if is_dataclass(value):
        return plain_fields(value)
    if type(value) is tuple:
        return [list(each) if isinstance(each, tuple) else _plain(each) for each in value]
    return value


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(each.name for each in fields(kind))
    return _NAMES[kind]


@dataclass(frozen=True, slots=True)
class PriceRecord:
    """The expected waste of each alternative. Null means that it was not possible."""

    preserve: Annotated[float | None, About("keep the blocks", "block-seconds")] = None
    discard: Annotated[float | None, About("drop and recompute", "block-seconds")] = None
    swap: Annotated[float | None, About("copy to the host and back", "block-seconds")] = None


@dataclass(frozen=True, slots=True)
class OpeningInputs:
    """The inputs of an opening's prices: those of the request first, then those of the engine."""

    elapsed: Annotated[float | None, About("time since the pause began", "s")] = None
    remaining: Annotated[float | None, About("expected time until the result", "s")] = None
    resident: Annotated[int | None, About("blocks that only this request holds", "blocks")] = None
    free_to_release: Annotated[
        int | None, About("resident blocks with a copy on the host", "blocks")
    ] = None
    uncopied: Annotated[int | None, About("resident blocks without a copy", "blocks")] = None
    hosted: Annotated[int | None, About("its blocks on the host only", "blocks")] = None
    missing: Annotated[
        int | None, About("its blocks on neither the device nor the host", "blocks")
    ] = None
    recomputed: Annotated[
        int | None,
        About(
            "what a resume would compute again after a discard, where a model has several groups",
            "tokens",
        ),
    ] = None
    block_size: Annotated[int | None, About("tokens of a block of full attention", "tokens")] = None
    total_blocks: Annotated[int | None, About("size of the KV cache", "blocks")] = None
    free_blocks: Annotated[int | None, About("free blocks", "blocks")] = None
    host_free: Annotated[int | None, About("free blocks of the host", "blocks")] = None
    running_tokens: Annotated[int | None, About("query tokens of the coming step", "tokens")] = None
    running_context: Annotated[int | None, About("context of that step", "tokens")] = None
    link_blocks: Annotated[
        int | None, About("blocks that the link can copy beside a step", "blocks per step")
    ] = None
    swap_pays: Annotated[
        bool | None, About("whether loading a block is faster than recomputing it")
    ] = None
    step_seconds: Annotated[float | None, About("expected time of the coming step", "s")] = None


@dataclass(frozen=True, slots=True)
class FeatureRecord:
    """What was known of a session when a segment was queued. Words are salted hashes."""

    context_tokens: Annotated[int, About("its context", "tokens")] = 0
    seconds: Annotated[float, About("time since its arrival", "s")] = 0.0
    segment_tokens: Annotated[int, About("decoded in its last segment", "tokens", read_by="")] = 0
    segment_mean: Annotated[
        float, About("decoded in a segment, on average", "tokens", read_by="")
    ] = 0.0
    result_tokens: Annotated[int, About("its last result", "tokens", read_by="")] = 0
    result_mean: Annotated[float, About("a result, on average", "tokens", read_by="")] = 0.0
    errors: Annotated[int, About("results that were errors", "results")] = 0
    last_error: Annotated[
        bool, About("whether the last result was an error", read_by="page, replay")
    ] = False
    tool: Annotated[str, About("the last tool")] = ""
    words: Annotated[list[int], About("hashed words of the last call", read_by="page, replay")] = (
        field(default_factory=list)
    )
    heads: Annotated[
        list[int], About("hashed first words of all calls so far", read_by="replay")
    ] = field(default_factory=list)
    head_calls: Annotated[
        list[int], About("calls that had each of these first words", read_by="replay")
    ] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PredictionRecord:
    """What one predictor expected when a segment was queued. Null means that it does not say."""

    predictor: Annotated[str, About("the predictor's name", read_by="page, metrics")] = ""
    decode_tokens: Annotated[
        float | None, About("mean tokens of the segment", "tokens", read_by="page, metrics")
    ] = None
    decode_quantiles: Annotated[
        list[float],
        About("10, 50 and 90 % quantiles of these tokens; empty without them", "tokens"),
    ] = field(default_factory=list)
    calls_left: Annotated[
        float | None,
        About("mean number of calls until the session ends", "calls", read_by="page, metrics"),
    ] = None
    ends_now: Annotated[
        float | None,
        About("probability that the session ends with this segment", read_by="page, metrics"),
    ] = None
    ends_within_3: Annotated[
        float | None,
        About("probability of at most 3 further calls", read_by="page, metrics"),
    ] = None
    pause_seconds: Annotated[
        float | None, About("mean duration of the next pause", "s", read_by="page, metrics")
    ] = None
    long_pause: Annotated[
        float | None,
        About("probability that the next pause exceeds 30 s", read_by="page, metrics"),
    ] = None


class DecisionRow(NamedTuple):
    """One decision about a paused request, with the price of every alternative at that moment.

    A price is null if the alternative was not possible. The price of the chosen act is the field
    of its name: `discard`, `swap`, or `preserve`.
    """

    seconds: Annotated[float, About("time since the pause began", "s")]
    act: Annotated[str, About("`discard` or `swap`")]
    blocks: Annotated[int, About("blocks released", "blocks")]
    why: Annotated[
        str,
        About(
            "`decided` by the handling itself, `running` requests needed blocks, to `admit` a "
            "waiting one, the engine was `stuck`, the pause's `deadline`, a `reset` of the prefix "
            "cache, the `session end` that its client told, a `recurrent state` that may hold "
            "other tokens, or an `unknown layout` of the KV cache"
        ),
    ] = ""
    preserve: Annotated[float | None, About("price of keeping", "block-seconds")] = None
    discard: Annotated[float | None, About("price of discarding", "block-seconds")] = None
    swap: Annotated[float | None, About("price of swapping", "block-seconds")] = None
    whom: Annotated[str, About("the waiting request that needed the blocks, to `admit` it")] = ""


class WantedRow(NamedTuple):
    """Another request that lacked free blocks during a pause and the queue behind it."""

    request: Annotated[str, About("the request's id in the engine")]
    seconds: Annotated[float, About("how long it lacked blocks meanwhile", "s")]


@dataclass(frozen=True, slots=True)
class LackedSteps:
    """Steps in which a waiting request lacked each resource; a step counts its first lack."""

    blocks: Annotated[int, About("free KV blocks", "steps")] = 0
    slots: Annotated[int, About("runner slots (`max_num_seqs`)", "steps")] = 0
    tokens: Annotated[int, About("query tokens of the step", "steps")] = 0
    admission: Annotated[int, About("the admission policy's consent", "steps")] = 0
    line: Annotated[
        int, About("its turn: it was behind a request that must not be overtaken", "steps")
    ] = 0


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span."""

    name: Annotated[str, About("the event's name", read_by="page, export")]
    at: Annotated[float, About("when it happened", "s", read_by="page, export")]
    attributes: Annotated[
        Mapping[str, Any], About("OpenTelemetry attributes", read_by="page, export")
    ] = field(default_factory=dict)


NO_PRICES = PriceRecord()
NO_INPUTS = OpeningInputs()
NO_FEATURES = FeatureRecord()
NOTHING_LACKED = LackedSteps()
