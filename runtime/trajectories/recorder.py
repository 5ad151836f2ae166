"""`TrajectoryRecorder`: grows the tree of a session's tokens while the engine computes them.

Where a turn belongs follows from the tokens alone: it goes on behind a branch whose tokens are its
whole context, and begins another one where they differ. So it does not matter why they do.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from caesura.intercept.calls.events import ResumeReport
from caesura.runtime.errors import UsageError
from caesura.runtime.trajectories.trajectory import (
    Branch,
    Medium,
    Segment,
    Source,
    StopReason,
    Trajectory,
)
from caesura.scheduler.messages import Message
from caesura.scheduler.session_log import LoggedTurn, SampledFacts, TurnOutcome, WeightsSpan


@dataclass(slots=True)
class _Part:
    """A segment that may grow; its fields are those of `Segment`."""

    source: Source
    tokens: "array[int]"
    logprobs: "array[float] | None" = None
    weights: list[WeightsSpan] = field(default_factory=list)
    messages: tuple[int, int] | None = None
    started_at: float | None = None
    seconds: float | None = None
    media: tuple[Medium, ...] = ()
    stop_reason: StopReason | None = None
    cached_tokens: int | None = None
    resume: ResumeReport | None = None

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None) -> None:
        """Add tokens; log probabilities are known of all of them, or of none."""
        logprobs, weights = facts or SampledFacts()
        if logprobs is None or len(logprobs) != len(tokens):
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs.extend(logprobs)
        for name, count in weights or (WeightsSpan(None, len(tokens)),):
            if self.weights and self.weights[-1].version == name:
                count += self.weights.pop().tokens
            self.weights.append(WeightsSpan(name, count))
        self.tokens.extend(tokens)

    def segment(self) -> Segment:
        return Segment(
            source=self.source,
            tokens=tuple(self.tokens),
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            weights=tuple(self.weights) if any(name for name, _ in self.weights) else (),
            messages=self.messages,
            media=self.media,
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

    is_open: bool = False
    """Whether its last turn is under way, so that nothing can follow it yet."""

    @property
    def own(self) -> Sequence[_Part | Segment]:
        """What stands behind the tokens that it shares, piece by piece."""
        return self.parts if self.frozen is None else self.frozen.segments

    def messages_before(self, length: int) -> int | None:
        """Return how many messages its first tokens write as a whole, as far as it is known."""
        if self.parent is not None and length <= self.branch_point:
            return self.parent.messages_before(length)
        found = 0 if self.parent is None else self.parent.messages_before(self.branch_point)
        at = self.branch_point
        for each in self.own:
            at += len(each.tokens)
            if at > length:
                break
            found = None if each.messages is None else each.messages[1]
        return found

    def media_before(self, length: int) -> int:
        """Return how many media its first tokens hold; they end where a segment with media does."""
        found = 0
        if self.parent is not None:
            found = self.parent.media_before(min(self.branch_point, length))
        at = self.branch_point
        for each in self.own:
            at += len(each.tokens)
            if at > length:
                break
            found += len(each.media)
        return found

    @property
    def length(self) -> int:
        """How many tokens it has from the first one."""
        return self.branch_point + sum(len(each.tokens) for each in self.own)

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


class Told(NamedTuple):
    """The messages that a turn was sent for."""

    total: int
    """How many the history has, before the turn's answer."""
    new: int
    """How many of them stand behind the last answer."""

    @classmethod
    def of(cls, history: Sequence[Message]) -> "Told":
        """Return how many messages a whole history has."""
        behind = takewhile(lambda each: each.get("role") != "assistant", reversed(history))
        return cls(len(history), sum(1 for _ in behind))


@dataclass(frozen=True, slots=True)
class _Sent:
    """A turn that was sent, of which nothing was sampled yet."""

    source: Source
    at: float | None
    known: int
    """How many tokens of the context another branch may hold."""
    messages: "Told | None" = None
    rendered: Source | None = None
    """What it is if the template wrote the whole context, and it follows no branch."""
    media: tuple[Medium, ...] = ()
    """All that the context holds."""


class _Tree:
    """The branches of one session, which several recorders may grow."""

    def __init__(self) -> None:
        self.branches: list[_Growing] = []
        self.current: _Growing | None = None
        """The branch that grew last."""
        self.lost = ""
        self.tokens = 0
        """How many tokens its own branches hold."""
        self.changed: Callable[[], None] | None = None
        """Called when a turn begins and when it ends."""

    def nearest(self, context: list[int], media: Sequence[Medium]) -> tuple[_Growing | None, int]:
        """Return the branch that shares most of the first tokens, and how many.

        Tokens whose media differ are no shared ones. Of several it is the one that grew last, then
        the youngest.
        """
        shared: dict[str, int] = {}
        for each in self.branches:  # parents stand before their children
            known = 0 if each.parent is None else shared[each.parent.id]
            if each.parent is None or known >= each.branch_point:
                known = _shared(each, context, media)
            shared[each.id] = known
        found, most = None, 0
        for each in self._latest():
            if shared[each.id] > most:
                found, most = each, shared[each.id]
        return found, most

    def _latest(self) -> Iterator[_Growing]:
        if self.current is not None:
            yield self.current
        yield from (each for each in reversed(self.branches) if each is not self.current)


class TrajectoryRecorder:
    """Records what the engine's sessions of one session are sent, and what they sample.

    It gets the turns that a `SessionLog` gets, each with its whole tokens. Times are handed in, as
    Unix times; None: it is not known when. Sessions of the engine that are there at the same time
    need a recorder each: see `beside`.
    """

    def __init__(self, session: str, branches: Sequence[Branch] = ()) -> None:
        """Create it for a session; `branches` are those of the session that it was forked from."""
        self._session = session
        self._model: str | None = None
        self._tree = _Tree()
        for each in branches:
            parent = next((made for made in self._tree.branches if made.id == each.parent), None)
            made = _Growing(each.id, each.model, parent, each.branch_point, frozen=each)
            self._tree.branches.append(made)
            self._tree.current = made
        self._growing: _Growing | None = None
        """The branch of the last turn."""
        self._context: list[int] = []
        """The tokens of the engine's session."""
        self._is_first = True
        """Whether the engine's session has had no turn."""
        self._sent: _Sent | None = None
        self._open: _Part | None = None
        """The sampled segment of the last turn."""
        self._paused_at: float | None = None

    # -- what the session does -------------------------------------------------------------------

    def uses(self, model: str) -> None:
        """Note the model of the turns that follow."""
        self._model = model

    def lose(self, why: str) -> None:
        """Note that the tokens of a turn are not known; those of others are of no use then."""
        self._tree.lost = self._tree.lost or why
        self._tree.branches, self._tree.current, self._tree.tokens = [], None, 0

    def stands_at(self, context: Sequence[int]) -> None:
        """Note the tokens with which a session of the engine goes on; none for a new one."""
        self._release()
        self._context, self._is_first = list(context), not context
        self._sent = self._open = self._paused_at = None

    def begin(
        self,
        turn: LoggedTurn,
        source: Source,
        at: float | None,
        messages: Told | None = None,
        media: Sequence[Medium] | None = None,
    ) -> None:
        """Begin a turn, whose tokens `source` has made, for `messages` if they are known.

        `media` are those of the whole context, for a turn that has media.
        """
        if turn.has_media and not (media and turn.appended):
            self.lose("the tokens of pictures, sounds and of another model are not known")
            return
        if source == "tool" and self._open is not None:
            self._open.stop_reason = "call"
        self._release()
        context = [] if turn.replaces else self._context
        rendered: Source | None = None
        if not context:
            rendered = "prompt" if self._is_first else "template"
        self._context, self._is_first = [*context, *turn.appended], False
        known = len(context) or len(self._context)
        held = tuple(media or ())
        self._sent, self._open = _Sent(source, at, known, messages, rendered, held), None
        self._change()
        if not self._context:
            self.lose("the engine keeps its tokens to itself")

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Add tokens that were sampled in the turn that has begun, and what is known of them."""
        if self._tree.lost or not tokens:
            return
        if self._open is None:
            self._open = self._placed(self._sent or _Sent("prompt", None, len(self._context)))
            self._sent = None
        self._open.sampled(tokens, facts)
        self._tree.tokens += len(tokens)
        self._context.extend(tokens)

    def end(self, outcome: TurnOutcome, at: float | None) -> None:
        """End the turn that has begun."""
        self._paused_at, part = at, self._open
        self._release()
        self._change()
        if part is None:
            return
        part.stop_reason = (
            "length" if outcome.finish == "length" else "call" if outcome.paused else "stop"
        )
        part.cached_tokens, part.resume = outcome.cached_tokens, outcome.resume
        if at is not None and part.started_at is not None:
            part.seconds = at - part.started_at

    def stops(self, reason: StopReason) -> None:
        """Note how the turn that has ended did, where who asked the engine knows it better."""
        if self._open is not None:
            self._open.stop_reason = reason

    def leave(self) -> None:
        """Let other recorders go on behind the turn under way, which was broken off."""
        self._release()
        self._change()

    def watch(self, changed: Callable[[], None] | None) -> None:
        """Call a function whenever a turn begins or ends; None: call none from now on."""
        self._tree.changed = changed

    def _release(self) -> None:
        if self._growing is not None:
            self._growing.is_open = False

    def _change(self) -> None:
        if self._tree.changed is not None:
            self._tree.changed()

    # -- what is known ---------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """How many tokens it holds, without those of the session that it was forked from."""
        return self._tree.tokens

    def trajectory(self) -> Trajectory:
        """Return all branches so far. Raises `UsageError` if tokens are not known."""
        if why := self._tree.lost:
            raise UsageError(f"the session {self._session!r} has no whole trajectory: {why}")
        branches = tuple(each.branch(self._session) for each in self._tree.branches)
        return Trajectory(session=self._session, branches=branches)

    def forked(self, session: str) -> "TrajectoryRecorder":
        """Return the recorder of a session that goes on from here by itself."""
        made = TrajectoryRecorder(session, [each.branch(self._session) for each in self._line()])
        made._tree.lost = self._tree.lost
        return made

    def beside(self) -> "TrajectoryRecorder":
        """Return a recorder of another session of the engine, which grows the same tree."""
        made = TrajectoryRecorder(self._session)
        made._tree = self._tree
        return made

    # -- the tree --------------------------------------------------------------------------------

    def _line(self) -> list[_Growing]:
        """Return the branch that grew last, behind those whose tokens it shares."""
        line: list[_Growing] = []
        branch = self._tree.current
        while branch is not None:
            line.insert(0, branch)
            branch = branch.parent
        return line

    def _placed(self, sent: _Sent) -> _Part:
        """Give the turn that was sent its place in the tree; return its sampled segment."""
        branch, shared = self._tree.nearest(self._context[: sent.known], sent.media)
        seen = branch.media_before(shared) if branch is not None and sent.media else 0
        whole = branch is not None and shared == branch.length and not branch.is_open
        if branch is None or not whole or branch.frozen is not None or not self._is_of(branch):
            branch = self._new(branch, shared)
        told, said = _spans(sent, branch.messages_before(shared), goes_on=whole)
        source = sent.source if sent.rendered is None or whole else sent.rendered
        if new := self._context[shared:]:
            branch.parts.append(self._appended(source, new, sent.at))
            branch.parts[-1].messages = told
            branch.parts[-1].media = sent.media[seen:]
            self._tree.tokens += len(new)
        branch.parts.append(_Part("sampled", array("i"), array("f"), [], said, sent.at))
        branch.is_open = True
        self._tree.current = self._growing = branch
        return branch.parts[-1]

    def _appended(self, source: Source, tokens: list[int], at: float | None) -> _Part:
        paused = self._paused_at
        if source != "tool" or paused is None or at is None:
            return _Part(source, array("i", tokens))
        return _Part(source, array("i", tokens), started_at=paused, seconds=at - paused)

    def _is_of(self, branch: _Growing) -> bool:
        """Whether a branch is the present model's; an earlier process's counts as it."""
        if branch.model is None:
            branch.model = self._model
        return branch.model == self._model

    def _new(self, parent: _Growing | None, shared: int) -> _Growing:
        """Begin a branch behind the shared tokens of another, or of that one's parents."""
        while parent is not None and parent.parent is not None and shared <= parent.branch_point:
            parent = parent.parent
        number = sum(each.frozen is None for each in self._tree.branches)
        made = _Growing(f"{self._session}/{number}", self._model, parent, shared)
        self._tree.branches.append(made)
        return made


Span = tuple[int, int]


def _spans(sent: _Sent, before: int | None, *, goes_on: bool) -> tuple[Span | None, Span | None]:
    """Return the messages that a turn was sent for, and that of its answer, by their places.

    The shared tokens write the first `before` messages. With `goes_on` they are a whole branch.
    """
    if sent.messages is None or before is None:
        return None, None
    end = before + sent.messages.new if goes_on else sent.messages.total
    return (min(before, end), end), (end, end + 1)


def _shared(branch: _Growing, context: list[int], media: Sequence[Medium]) -> int:
    """Return how many of the first tokens a branch has of a context, which has those it shares.

    A segment with media is shared as a whole, or not at all: its placeholders tell nothing.
    """
    at = branch.branch_point
    seen = branch.media_before(at) if media else 0
    for part in branch.own:
        held, tokens = part.media, part.tokens
        same = _common(list(tokens), context[at : at + len(tokens)])
        if held and (same < len(tokens) or not _equal(held, media[seen : seen + len(held)])):
            break
        at, seen = at + same, seen + len(held)
        if same < len(tokens):
            break
    return at


def _equal(one: Sequence[Medium], other: Sequence[Medium]) -> bool:
    return [(each.kind, each.digest) for each in one] == [
        (each.kind, each.digest) for each in other
    ]


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
