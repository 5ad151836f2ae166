"""`TrajectoryRecorder`: grows the tree of a session's tokens while the engine computes them.

Where a turn belongs follows from the tokens alone: it goes on behind a branch whose tokens are its
whole context, and begins another one where they differ. So it does not matter why they do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from caesura.intercept.calls.events import ResumeReport
from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.trajectory import (
    Branch,
    Segment,
    Source,
    StopReason,
    Trajectory,
)
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome


@dataclass(slots=True)
class _Part:
    """A segment that may grow; its fields are those of `Segment`."""

    source: Source
    tokens: list[int]
    started_at: float | None = None
    stop_reason: StopReason | None = None
    seconds: float | None = None
    cached_tokens: int | None = None
    resume: ResumeReport | None = None

    def segment(self) -> Segment:
        return Segment(
            source=self.source,
            tokens=tuple(self.tokens),
            stop_reason=self.stop_reason,
            started_at=self.started_at,
            seconds=self.seconds,
            cached_tokens=self.cached_tokens,
            resume=self.resume,
        )


@dataclass(slots=True)
class _Growing:
    """A branch that may grow."""

    id: str
    model: str | None
    parent: "_Growing | None" = None
    branch_point: int = 0
    parts: list[_Part] = field(default_factory=list)
    frozen: Branch | None = None
    """What a fork has from its parent, which does not grow here."""

    def tokens(self) -> list[int]:
        """Return all tokens from the first one."""
        shared = [] if self.parent is None else self.parent.tokens()[: self.branch_point]
        if self.frozen is not None:
            return [*shared, *(token for each in self.frozen.segments for token in each.tokens)]
        return [*shared, *(token for each in self.parts for token in each.tokens)]

    def branch(self, session: str) -> Branch:
        if self.frozen is not None:
            return self.frozen
        return Branch(
            id=self.id,
            session=session,
            model=self.model,
            parent=None if self.parent is None else self.parent.id,
            branch_point=self.branch_point,
            segments=tuple(each.segment() for each in self.parts),
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A turn that was sent, of which nothing was sampled yet."""

    source: Source
    at: float | None
    known: int
    """How many tokens of the context another branch may hold."""
    rendered: Source | None = None
    """What it is if the template wrote the whole context, and it follows no branch."""


class TrajectoryRecorder:
    """Records what the engine's sessions of one session are sent, and what they sample.

    It gets the turns that a `SessionLog` gets, each with its whole tokens. Times are handed in, as
    Unix times; None: it is not known when.
    """

    def __init__(self, session: str, branches: Sequence[Branch] = ()) -> None:
        """Create it for a session; `branches` are those of the session that it was forked from."""
        self._session = session
        self._model: str | None = None
        self._branches: list[_Growing] = []
        for each in branches:
            parent = next((made for made in self._branches if made.id == each.parent), None)
            made = _Growing(each.id, each.model, parent, each.branch_point, frozen=each)
            self._branches.append(made)
        self._current = self._branches[-1] if self._branches else None
        """The branch that grew last."""
        self._context: list[int] = []
        """The tokens of the engine's session."""
        self._is_first = True
        """Whether the engine's session has had no turn."""
        self._sent: _Sent | None = None
        self._open: _Part | None = None
        """The sampled segment of the last turn."""
        self._paused_at: float | None = None
        self._lost = ""

    # -- what the session does -------------------------------------------------------------------

    def uses(self, model: str) -> None:
        """Note the model of the turns that follow."""
        self._model = model

    def lose(self, why: str) -> None:
        """Note that the tokens of a turn are not known."""
        self._lost = self._lost or why

    def stands_at(self, context: Sequence[int]) -> None:
        """Note the tokens with which a session of the engine goes on; none for a new one."""
        self._context, self._is_first = list(context), not context
        self._sent = self._open = self._paused_at = None

    def begin(self, turn: LoggedTurn, source: Source, at: float | None) -> None:
        """Begin a turn, whose tokens `source` has made."""
        if turn.has_media:
            self.lose("the tokens of pictures, sounds and of another model are not known")
            return
        if source == "tool" and self._open is not None:
            self._open.stop_reason = "call"
        context = [] if turn.replaces else self._context
        rendered: Source | None = None
        if not context:
            rendered = "prompt" if self._is_first else "template"
        self._context, self._is_first = [*context, *turn.appended], False
        known = len(context) or len(self._context)
        self._sent, self._open = _Sent(source, at, known, rendered), None
        if not self._context:
            self.lose("the engine keeps its tokens to itself")

    def sampled(self, tokens: Sequence[int]) -> None:
        """Add tokens that were sampled in the turn that has begun."""
        if self._lost or not tokens:
            return
        if self._open is None:
            self._open = self._placed(self._sent or _Sent("prompt", None, len(self._context)))
            self._sent = None
        self._open.tokens.extend(tokens)
        self._context.extend(tokens)

    def end(self, outcome: TurnOutcome, at: float | None) -> None:
        """End the turn that has begun."""
        self._paused_at, part = at, self._open
        if part is None:
            return
        part.stop_reason = (
            "length" if outcome.finish == "length" else "call" if outcome.paused else "stop"
        )
        part.cached_tokens, part.resume = outcome.cached_tokens, outcome.resume
        if at is not None and part.started_at is not None:
            part.seconds = at - part.started_at

    # -- what is known ---------------------------------------------------------------------------

    def trajectory(self) -> Trajectory:
        """Return all branches so far. Raises `UsageError` if tokens are not known."""
        if self._lost:
            raise UsageError(f"the session {self._session!r} has no whole trajectory: {self._lost}")
        branches = tuple(each.branch(self._session) for each in self._branches)
        return Trajectory(session=self._session, branches=branches)

    def forked(self, session: str) -> "TrajectoryRecorder":
        """Return the recorder of a session that goes on from here by itself."""
        made = TrajectoryRecorder(session, [each.branch(self._session) for each in self._line()])
        made._lost = self._lost
        return made

    # -- the tree --------------------------------------------------------------------------------

    def _line(self) -> list[_Growing]:
        """Return the branch that grew last, behind those whose tokens it shares."""
        line: list[_Growing] = []
        branch = self._current
        while branch is not None:
            line.insert(0, branch)
            branch = branch.parent
        return line

    def _placed(self, sent: _Sent) -> _Part:
        """Give the turn that was sent its place in the tree; return its sampled segment."""
        branch, shared = self._nearest(self._context[: sent.known])
        whole = branch is not None and shared == len(branch.tokens())
        if branch is None or not whole or branch.frozen is not None or not self._is_of(branch):
            branch = self._new(branch, shared)
        source = sent.source if sent.rendered is None or whole else sent.rendered
        if new := self._context[shared:]:
            branch.parts.append(self._appended(source, new, sent.at))
        branch.parts.append(_Part("sampled", [], sent.at))
        self._current = branch
        return branch.parts[-1]

    def _appended(self, source: Source, tokens: list[int], at: float | None) -> _Part:
        paused = self._paused_at
        if source != "tool" or paused is None or at is None:
            return _Part(source, tokens)
        return _Part(source, tokens, paused, seconds=at - paused)

    def _nearest(self, context: list[int]) -> tuple[_Growing | None, int]:
        """Return the branch that shares most of the first tokens, and how many.

        Of several it is the one that grew last, then the youngest.
        """
        found, most = None, 0
        for each in self._latest():
            shared = _common(each.tokens(), context)
            if shared > most:
                found, most = each, shared
            if most == len(context):
                break
        return found, most

    def _latest(self) -> Iterator[_Growing]:
        if self._current is not None:
            yield self._current
        yield from (each for each in reversed(self._branches) if each is not self._current)

    def _is_of(self, branch: _Growing) -> bool:
        """Whether a branch is the present model's; an earlier process's counts as it."""
        if branch.model is None:
            branch.model = self._model
        return branch.model == self._model

    def _new(self, parent: _Growing | None, shared: int) -> _Growing:
        """Begin a branch behind the shared tokens of another, or of that one's parents."""
        while parent is not None and parent.parent is not None and shared <= parent.branch_point:
            parent = parent.parent
        number = sum(each.frozen is None for each in self._branches)
        made = _Growing(f"{self._session}/{number}", self._model, parent, shared)
        self._branches.append(made)
        return made


def _common(one: list[int], other: list[int]) -> int:
    """Return how many of the first items are equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
