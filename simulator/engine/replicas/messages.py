"""What the front and the replicas tell each other at the end of an epoch, as plain data."""

from dataclasses import dataclass, field
from typing import NamedTuple

from caesura.simulator.results import SessionResult, Totals
from caesura.simulator.session import Session


@dataclass(slots=True)
class Progress:
    """How far a session has come; it goes with the session from replica to replica.

    `index` is that of the last segment that was served, -1 before the first one. Its context then
    had `context` tokens before what that segment decoded, and `reached` tokens have been computed
    at some replica.
    """

    result: SessionResult
    index: int = -1
    context: int = 0
    reached: int = 0


class Send(NamedTuple):
    """A request for a replica, which reaches it at the second `at`; the client sent it at `sent`.

    `place` names the session by its order of arrival. `session` and `progress` are None if the
    replica served the session's last segment.
    """

    place: int
    at: float
    sent: float
    session: Session | None = None
    progress: Progress | None = None


class Returned(NamedTuple):
    """A session whose tool returns at the second `at`, and which is to be routed again."""

    place: int
    at: float
    progress: Progress


class Ended(NamedTuple):
    """A session that has ended."""

    place: int
    result: SessionResult


@dataclass(frozen=True, slots=True)
class Orders:
    """What a replica is sent for an epoch, and the sessions that leave it for other replicas."""

    sends: list[Send] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class News:
    """A replica at the end of an epoch.

    `requests` run or wait there, with `tokens` in their contexts, of which `prefill_tokens` were
    given and have no first token behind them yet. Its next step begins at `next_at`; None if it has
    nothing to do.
    """

    requests: int
    tokens: int
    prefill_tokens: int
    next_at: float | None
    returned: list[Returned]
    ended: list[Ended]


@dataclass(frozen=True, slots=True)
class Account:
    """What a replica measured in the whole run; `unfinished` sessions were cut off there."""

    totals: Totals
    timeline: dict[str, list[float]]
    segments: int
    unfinished: list[Ended]
