"""What the engine keeps of sessions, of their requests and of paused KV caches, as data.

A session has a stage, which `TRANSITIONS` bounds. A request has one record, `Served`, from its
arrival to its end; `ServedRequests` makes it and forgets it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple, TypedDict

from vllm.v1.request import Request

from caesura.intercept.calls.events import ResumeReport
from caesura.intercept.calls.watch import Verdict, Watch
from caesura.intercept.kv.pause_durations import Durations, PauseForecast
from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.states import Pause
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.scheduler.policy.ranking import Score
from caesura.scheduler.predict.facts import Facts
from caesura.scheduler.programs import NO_ORIGIN, Origin
from caesura.scheduler.records import OpeningRecord
from caesura.scheduler.vllm.engine.port import Block
from caesura.scheduler.vllm.engine.port.blocks import Checkpoint
from caesura.scheduler.vllm.engine.port.grammars import TurnGrammars
from caesura.scheduler.vllm.engine.port.requests import is_loading
from caesura.scheduler.vllm.engine.swap.host import Key, Whole

Clock = Callable[[], float]
"""Returns seconds of a clock that never goes backwards."""


class Stage(Enum):
    """Where a session stands."""

    QUEUED = "queued"  # its request waits for its admission
    RUNNING = "running"  # its request is in the batch
    PAUSED = "paused"  # its request waits at a call
    LEFT = "left"  # its request has ended at a call, and a follow-up may continue it
    ENDED = "ended"
    ABORTED = "aborted"


class Event(Enum):
    """What happens to a session."""

    ADMIT = "admit"  # a step was scheduled with its request
    PREEMPT = "preempt"  # running requests took its blocks
    CALL = "call"  # it called a tool, whose result its request waits for
    RETURN = "return"  # the result was appended
    CONTINUE = "continue"  # its turn ended, and the next chunk had already come
    LEAVE = "leave"  # its request ended at a call
    FOLLOW = "follow"  # another request brings the result
    END = "end"  # it ended by itself
    ABORT = "abort"  # its client or an error ended it


TRANSITIONS: dict[Event, tuple[frozenset[Stage], Stage]] = {
    Event.ADMIT: (frozenset({Stage.QUEUED}), Stage.RUNNING),
    Event.PREEMPT: (frozenset({Stage.RUNNING}), Stage.QUEUED),
    # With asynchronous scheduling a turn may end while its request is queued again: the last token
    # was in flight when running requests took the blocks.
    Event.CALL: (frozenset({Stage.RUNNING, Stage.QUEUED}), Stage.PAUSED),
    Event.CONTINUE: (frozenset({Stage.RUNNING, Stage.QUEUED}), Stage.QUEUED),
    Event.RETURN: (frozenset({Stage.PAUSED}), Stage.QUEUED),
    Event.LEAVE: (frozenset({Stage.RUNNING, Stage.QUEUED, Stage.PAUSED}), Stage.LEFT),
    Event.FOLLOW: (frozenset({Stage.LEFT}), Stage.QUEUED),
    Event.END: (frozenset({Stage.RUNNING, Stage.QUEUED}), Stage.ENDED),
    Event.ABORT: (frozenset({Stage.RUNNING, Stage.QUEUED, Stage.PAUSED}), Stage.ABORTED),
}
"""The stages in which an event may happen, and the one that follows."""


class IllegalEvent(Exception):
    """An event that `TRANSITIONS` does not have: a bug in the caller."""

    def __init__(self, session_id: str, stage: Stage, event: Event) -> None:
        super().__init__(f"session {session_id}: no event {event.value!r} while {stage.value!r}")


class SegmentFields(TypedDict):
    """The common fields of records of a segment."""

    session: str
    arrival: float
    given_tokens: int
    decoded_tokens: int


@dataclass(slots=True, eq=False)
class SessionState:
    """The state of one session.

    `session_id` is the id of its first request, and `arrival` the time of that request, which came
    at `begun_at` of the engine's clock. `facts` hold at the begin of its segment. `kind` is
    the last tool called, or before any call the offered tools; `kinds` are all earlier kinds.
    The last segment was given `given_tokens` and decoded `decoded_tokens`; with them the context
    was `context_tokens` long. `queued_at` is the begin of the current wait. `passes` counts steps
    in which other requests ran while it waited. `overtaken` counts steps of the current wait in
    which a request was admitted whose wait began later. `score` was computed in step
    `scored_in` for the KV in `scored_for`. `misfit` is the need found in step `misfit_in`, when it
    did not fit: blocks, and tokens that need no computation. `spoilt`: a segment missed the
    objective; `latest_start` is the latest admission with which the present one meets it.
    `origin` is where its last request comes from, and `expected_seconds` the engine seconds that
    the present segment is expected to consume. `final`: its client sends no follow-up any more.
    """

    session_id: str
    arrival: float
    kind: str
    queued_at: float
    begun_at: float
    facts: Facts
    stage: Stage = Stage.QUEUED
    kinds: set[str] = field(default_factory=set)
    calls: int = 0
    context_tokens: int = 0
    given_tokens: int = 0
    decoded_tokens: int = 0
    passes: int = 0
    overtaken: int = 0
    starved: bool = False
    started: bool = False
    spoilt: bool = False
    latest_start: float = inf
    origin: Origin = NO_ORIGIN
    final: bool = False
    expected_seconds: float = 0.0
    score: Score | None = None
    scored_in: int = 0
    scored_for: Any = None
    misfit: tuple[int, int] | None = None
    misfit_in: int = 0

    def take(self, event: Event) -> None:
        """Change the stage; raises `IllegalEvent` if `TRANSITIONS` has no such event from it."""
        stages, following = TRANSITIONS[event]
        if self.stage not in stages:
            raise IllegalEvent(self.session_id, self.stage, event)
        self.stage = following

    def is_of(self, tenant: str, names: Collection[str]) -> bool:
        """Return whether it is one of a tenant's named sessions, or was started by one."""
        origin = self.origin
        return origin.tenant == tenant and (origin.session in names or origin.parent in names)

    def queue(self, now: float) -> None:
        """Reset the counts of a wait: the request was queued, or its KV changed while queued."""
        self.queued_at = now
        self.passes = self.overtaken = 0
        self.score = self.misfit = None

    def segment(self) -> SegmentFields:
        """Return its id and arrival, and its last segment's given and decoded tokens."""
        return SegmentFields(
            session=self.session_id,
            arrival=self.arrival,
            given_tokens=self.given_tokens,
            decoded_tokens=self.decoded_tokens,
        )


class Release(NamedTuple):
    """A release of blocks: its time, its action, the number of blocks and the reason.

    `prices` are those of all alternatives just before, in block-seconds; None without records.
    `whom` is the request that needed the blocks, where it was one.
    """

    at: float
    action: str
    blocks: int
    why: str
    prices: Prices | None
    whom: str = ""


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of a paused request and of the engine when the pause began, and its charge."""

    view: PausedKVView
    step: StepView
    segment: SegmentFields
    record: OpeningRecord
    charge: Charge


@dataclass(slots=True, eq=False)
class PausedKV:
    """The KV cache of a paused request, or of a finished one (`pause` is None).

    A paused request at first keeps its blocks in vLLM, so it resumes without any computation. The
    KV of a request that finished with a call is kept until its follow-up arrives.
    `keys` identify the content of its full blocks; of the blocks in `whole`, where it is copied as
    a whole. `detached` are the front blocks referenced here; it is None while the request itself
    holds them. Of a finished request, whose blocks cannot be
    found one by one, all are held under the name `kept_as`, until its follow-up `adopter` takes
    them over. `resident`, `uncopied` and `missing` have the meaning of `PausedKVView`. `present`
    includes shared blocks. `copied` is the number of confirmed copies among `keys`. `covered` is
    the number of last resident full blocks with copies, without a gap. `partial` is the
    number of last blocks, one in each group, that a request which holds all has partly filled.
    `ends_next` is the probability that the session ends with its next segment. The counts are
    out of date while `stale`. `releases` are in order of time. `opening` is the state that was
    recorded when the pause began. `forecast` is the first one that was given for this pause.
    `lost_tokens` are tokens of its context that its follow-up computes again. `number` counts the
    pauses before it. `checkpoint` is what the prefix cache had of it when it was last searched.
    """

    key: str
    request: Request
    session: SessionState
    pause: Pause | None
    since: float
    tool: str | None
    durations: Durations
    keys: list[Key]
    context_tokens: int
    whole: Whole | None = None
    ends_next: float = 0.0
    detached: list[Block] | None = None
    kept_as: str | None = None
    adopter: Request | None = None
    returned: bool = False
    returned_at: float = 0.0
    follow_up: str | None = None
    resident: int = 0
    present: int = 0
    copied: int = 0
    covered: int = 0
    uncopied: int = 0
    missing: int = 0
    partial: int = 0
    stale: bool = True
    releases: list[Release] = field(default_factory=list)
    opening: Opening | None = None
    forecast: PauseForecast | None = None
    lost_tokens: int = 0
    number: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def loading(self) -> bool:
        """Whether the KV is being loaded into blocks of vLLM's, which cannot be released."""
        return self.pause is not None and is_loading(self.request)

    @property
    def hosted_only(self) -> int:
        """Number of blocks among `keys` on the host only, which a resume loads."""
        if self.whole is not None and not self.swapped:
            return 0
        return max(0, min(self.copied, len(self.keys) - self.present - self.missing))

    @property
    def swapped(self) -> bool:
        """Whether it was copied as a whole, and can be loaded."""
        return self.whole is not None and self.copied == len(self.keys) > 0

    def shared_tokens(self, follow_up: Request, hash_tokens: int) -> int:
        """Return how many tokens of the context a follow-up has as well.

        They are counted by block hashes, of `hash_tokens` tokens each, if there are any.
        """
        if self.adopter is not None:
            return self.context_tokens
        if self.whole is None and follow_up.block_hashes:
            pairs = zip(self.keys, follow_up.block_hashes, strict=False)
            return hash_tokens * sum(ours == theirs for ours, theirs in pairs)
        own = self.request.all_token_ids[: self.context_tokens]
        both = zip(own, follow_up.all_token_ids, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))

    def remaining(self, now: float) -> float:
        """Return the expected remaining seconds of the pause."""
        elapsed = max(0.0, now - self.since)
        remaining = self.durations.remaining(elapsed)
        deadline = None if self.pause is None else self.pause.deadline_seconds
        if deadline is None or elapsed >= deadline:
            return remaining  # after its deadline the hint says nothing more
        return min(remaining, deadline - elapsed)


@dataclass(slots=True, eq=False)
class Served:
    """What the engine keeps of one request, from its arrival to its end.

    `watch` reads its present turn, if it is watched, and `verdict` is what stopped it in this step.
    `pause` is the open one: `PAUSED`, or `RESUMING` until the request runs. `resumed` is the report
    on the last one, until the turn's end. Up to the token `frontier` its KV is computed again.
    `follows` is the KV retained for it, until it runs.
    """

    request: Request
    session: SessionState
    grammars: TurnGrammars = field(default_factory=TurnGrammars)
    watch: Watch | None = None
    verdict: Verdict | None = None
    pause: Pause | None = None
    resumed: ResumeReport | None = None
    frontier: int = 0
    follows: PausedKV | None = None

    @property
    def request_id(self) -> str:
        """Return the id of the request."""
        return self.request.request_id


class ServedRequests(dict[str, Served]):
    """The records of one scheduler's requests, by request id.

    It is a dictionary since every token looks its request up. `arrive` and `forget` alone add and
    remove records. The requests that steps ask for are indexed, so no step searches all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paused: dict[str, Served] = {}
        """Those with an open pause, in the order in which the pauses began."""
        self.slot_keepers: dict[str, Served] = {}
        """Those that keep their runner slot while they are paused."""
        self.recomputing: dict[str, Served] = {}
        """Those whose KV is computed again, up to their `frontier`."""
        self.following: dict[str, Served] = {}
        """Those for which KV is retained, and which have not run yet."""
        self._by_client: dict[str, Served] = {}
        """Paused requests by the ids that their clients know."""

    def arrive(self, request: Request, session: SessionState) -> Served:
        """Return the record of a new request."""
        served = self[request.request_id] = Served(request, session)
        return served

    def forget(self, served: Served) -> None:
        """Remove the record of a request that is about to be freed, from every index."""
        self.close_pause(served)
        self.stop_recomputing(served)
        self.stop_following(served)
        if self.get(served.request_id) is served:
            del self[served.request_id]

    # -- pauses ----------------------------------------------------------------------------------

    def open_pause(self, served: Served, pause: Pause, *, keeps_slot: bool) -> None:
        """Begin a pause, which may keep the request's runner slot."""
        served.pause = pause
        self.paused[served.request_id] = served
        self._by_client[_clients_id(served.request_id)] = served
        if keeps_slot:
            self.slot_keepers[served.request_id] = served

    def close_pause(self, served: Served) -> None:
        """End the pause of a request, if it has one."""
        if served.pause is None:
            return
        served.pause = None
        self.give_slot_back(served)
        del self.paused[served.request_id]
        name = _clients_id(served.request_id)
        if self._by_client.get(name) is served:  # else another request of this client's id paused
            del self._by_client[name]

    def give_slot_back(self, served: Served) -> None:
        """Note that a request keeps no runner slot any more."""
        self.slot_keepers.pop(served.request_id, None)

    def find_paused(self, name: str) -> Served | None:
        """Return the paused request of that id, which is the engine's own or the client's."""
        return self.paused.get(name) or self._by_client.get(name)

    def find(self, name: str) -> Served | None:
        """Return the request of that id, which is the engine's own or the client's."""
        found = self.get(name)
        if found is None:
            found = next(
                (one for one in self.values() if _clients_id(one.request_id) == name), None
            )
        return found

    # -- what steps ask for ----------------------------------------------------------------------

    def recompute(self, served: Served, frontier: int) -> None:
        """Note that KV of a request is computed again, up to the token `frontier`."""
        served.frontier = frontier
        self.recomputing[served.request_id] = served

    def stop_recomputing(self, served: Served) -> None:
        """Note that no KV of a request is computed again."""
        self.recomputing.pop(served.request_id, None)

    def follow(self, served: Served, kv: PausedKV) -> None:
        """Note the KV that is retained for a request until it runs."""
        served.follows = kv
        self.following[served.request_id] = served

    def stop_following(self, served: Served) -> PausedKV | None:
        """Return the KV retained for a request, once, or None."""
        kv, served.follows = served.follows, None
        self.following.pop(served.request_id, None)
        return kv


def _clients_id(request_id: str) -> str:
    """Return the id that a client knows a request by: vLLM appends a `-` and a random number."""
    return request_id.rpartition("-")[0] or request_id
