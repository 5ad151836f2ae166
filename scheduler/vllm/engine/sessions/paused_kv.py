"""The KV cache of one paused request, as data.

A paused request at first keeps its blocks in vLLM, so it resumes without any computation. Its KV
may also be that of a request that finished with a call, until its follow-up arrives.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from vllm.v1.request import Request

from caesura.intercept.kv.pause_durations import Durations, PauseForecast
from caesura.intercept.kv.pressure import Charge
from caesura.intercept.kv.states import Pause
from caesura.intercept.kv.views import PausedKVView, Prices, StepView
from caesura.scheduler.records import OpeningRecord
from caesura.scheduler.vllm.engine.port import Block
from caesura.scheduler.vllm.engine.port.requests import is_loading
from caesura.scheduler.vllm.engine.sessions.session import SegmentFields, SessionState
from caesura.scheduler.vllm.engine.swap.host import Key


class Release(NamedTuple):
    """A release of blocks: its time, its action, the number of blocks and the reason.

    `prices` are those of all alternatives just before, in block-seconds; None without records.
    """

    at: float
    action: str
    blocks: int
    why: str
    prices: Prices | None


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

    `keys` identify the content of its full blocks. `detached` are the front blocks referenced here;
    it is None while the request itself holds them. Of a finished request, whose blocks cannot be
    found one by one, all are held under the name `kept_as`, until its follow-up `adopter` takes
    them over. `resident`, `uncopied` and `missing` have the
    meaning of `PausedKVView`. `present` includes shared blocks. `copied` is the number of confirmed
    copies among `keys`. `covered` is the number of last resident full blocks with copies, without a
    gap. `partial`: the last block of the request, which holds all of them, is partly filled.
    `ends_next` is the probability that the session ends with its next segment. The counts are
    out of date while `stale`. `releases` are in order of time. `opening` is the state that was
    recorded when the pause began. `forecast` is the first one that was given for this pause.
    `lost_tokens` are tokens of its context that its follow-up computes again. `number` counts the
    pauses before it.
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
    partial: bool = False
    stale: bool = True
    releases: list[Release] = field(default_factory=list)
    opening: Opening | None = None
    forecast: PauseForecast | None = None
    lost_tokens: int = 0
    number: int = 0

    @property
    def loading(self) -> bool:
        """Whether the KV is being loaded into blocks of vLLM's, which cannot be released."""
        return self.pause is not None and is_loading(self.request)

    @property
    def hosted_only(self) -> int:
        """Number of full blocks on the host only, which a resume loads."""
        return max(0, len(self.keys) - self.present - self.missing)

    def shared_blocks(self, follow_up: Request) -> int:
        """Return how many of the full blocks a follow-up's context has as well."""
        pairs = zip(self.keys, follow_up.block_hashes, strict=False)
        return sum(ours == theirs for ours, theirs in pairs)

    def remaining(self, now: float) -> float:
        """Return the expected remaining seconds of the pause."""
        elapsed = max(0.0, now - self.since)
        remaining = self.durations.remaining(elapsed)
        deadline = None if self.pause is None else self.pause.deadline_seconds
        if deadline is None or elapsed >= deadline:
            return remaining  # after its deadline the hint says nothing more
        return min(remaining, deadline - elapsed)
