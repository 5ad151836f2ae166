"""A session as tokens: who made them, how they branch, and what a trainer takes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from caesura.intercept.calls.events import ResumeReport
from caesura.runtime.errors import UsageError
from caesura.scheduler.session_log import WeightsSpan

Source = Literal["prompt", "sampled", "tool", "user", "template"]
"""Who made tokens.

`prompt`: the chat template wrote a whole history, the first or an edited one. `sampled`: the model.
`tool` and `user`: the results of calls, and a later prompt, each with what the template writes
around them. `template`: the template wrote earlier turns otherwise than they stood.
"""
StopReason = Literal["call", "stop", "length"]
REWARD = "reward"
"""The name of a reward that is the whole one."""


@dataclass(frozen=True, slots=True)
class Medium:
    """A picture, a sound or a video by reference. Its bytes are not kept."""

    kind: Literal["image", "audio", "video"]
    digest: str
    """The SHA-256 of its bytes, in hexadecimal digits."""
    message: int
    """The place of its message in the history."""
    part: int
    """Its place among the parts of the message's content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens that stand behind each other and have one source."""

    source: Source
    tokens: tuple[int, ...]
    """Their ids, as the engine has them."""
    logprobs: tuple[float, ...] | None = None
    """The log probability of each token that was sampled, as the engine had it then.

    None: nothing was sampled here, or that of a token is not known.
    """
    weights: tuple[WeightsSpan, ...] = ()
    """Which versions of the weights have sampled the tokens, in order; empty: it is not known."""
    messages: tuple[int, int] | None = None
    """The messages of the history that the tokens write: the first place, and that behind the last.

    The history has a message for each answer and each result, as chat completions do. Its first
    message here may begin before the segment. None: an earlier process had it.
    """
    media: tuple[Medium, ...] = ()
    """The pictures, sounds and videos whose placeholders are among the tokens, in order."""
    stop_reason: StopReason | None = None
    """How a sampled turn ended: at calls, by itself, or at a limit.

    None: it was broken off, it is under way, or nothing was sampled here.
    """
    started_at: float | None = None
    """When it began, a Unix time: a turn when it was sent, and the wait for tools at the pause.

    None where it is not known, such as for an earlier process, and for other sources.
    """
    seconds: float | None = None
    """How long that took: until the turn's last token, or until the results were sent."""
    cached_tokens: int | None = None
    """How many tokens of the context had their KV when a sampled turn began.

    The engine computed all others, also those that it had computed before. None: not known.
    """
    resume: ResumeReport | None = None
    """How long the turn was paused and queued before it, and what became of its KV.

    Of sampled turns that resumed a paused request.
    """

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 for each token that was sampled, and 0 for each other."""
        return (int(self.source == "sampled"),) * len(self.tokens)

    @property
    def versions(self) -> tuple[str | None, ...]:
        """The version of the weights of each token; None where it is not known."""
        told = tuple(name for name, count in self.weights for _ in range(count))
        return told + (None,) * (len(self.tokens) - len(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A sequence of tokens that a model computed, without those that it shares with its parent.

    A branch begins where a history was forked, rewound or edited, and where the chat template
    rewrote it.
    """

    id: str
    """Its session's id and a number."""
    session: str
    """The session that made it; for what a fork has from its parent, the parent's."""
    model: str | None
    """The model's name; None: an earlier process had it."""
    parent: str | None = None
    """The branch whose first tokens it shares; None for one that begins by itself."""
    branch_point: int = 0
    """How many tokens it shares, counted from the parent's first token."""
    segments: tuple[Segment, ...] = ()
    """What stands behind the shared tokens, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One whole sequence, as trainers take it: a prompt, and what follows it.

    `completion_ids` and what follows it, up to `weights`, have one item for each token.
    """

    session: str
    branch: str
    model: str | None
    prompt_ids: tuple[int, ...]
    """The ids of all tokens before the first that was sampled."""
    completion_ids: tuple[int, ...]
    """The ids of all others: of what was sampled, and of what came between."""
    loss_mask: tuple[int, ...]
    """1 for each token of the completion that counts, and 0 for each other."""
    sources: tuple[Source, ...]
    """Who made each token of the completion."""
    logprobs: tuple[float, ...] | None
    """The log probability of each token of the completion, and 0 for one that was not sampled.

    None: that of a sampled token is not known.
    """
    weights: tuple[str | None, ...]
    """Which version of the weights has sampled each token of the completion.

    None for one that was not sampled, and where it is not known.
    """
    stop_reason: StopReason | None
    """How its last turn ended; see `Segment.stop_reason`."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Those of its session, by name."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the whole sequence."""
        return self.prompt_ids + self.completion_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """All that a session has computed, as a tree of branches: a parent stands before its children.

    A fork's trajectory has the branches of its parent too, as they were, if it shares their tokens.
    """

    session: str
    """The session's id."""
    branches: tuple[Branch, ...] = ()
    parent: str | None = None
    """The id of the session that started it, where a server knows it."""
    rewards: dict[str, float] = field(default_factory=dict)
    """What a trainer has said of it, by name; a session below it has its own."""
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        """The reward that trainers get: the one named `reward`, or else the only one.

        None: there is none. Raises `UsageError` for several of other names.
        """
        if REWARD in self.rewards or len(self.rewards) < 2:
            return self.rewards.get(REWARD, next(iter(self.rewards.values()), None))
        raise UsageError(
            f"the session {self.session!r} has the rewards {', '.join(sorted(self.rewards))}, and"
            f" none of them is named {REWARD!r}: give a trainer the number that counts"
        )

    def branch(self, name: str) -> Branch:
        """Return the branch of an id. Raises `UsageError`."""
        found = next((each for each in self.branches if each.id == name), None)
        if found is None:
            known = ", ".join(each.id for each in self.branches) or "none"
            raise UsageError(f"there is no branch {name!r} in the trajectory; there are: {known}")
        return found

    def segments(self, name: str) -> tuple[Segment, ...]:
        """Return the segments of a branch from its first token, those that it shares too.

        One in which it leaves its parent is cut there. Raises `UsageError` for an unknown branch.
        """
        branch = self.branch(name)
        if branch.parent is None:
            return branch.segments
        return (*cut(self.segments(branch.parent), branch.branch_point), *branch.segments)

    def rollout(self, name: str | None = None, *, own: bool = True) -> Rollout:
        """Return a branch as one sequence; by default the last of the session's own.

        With `own` the loss mask is 0 for tokens that are shared with the parent: so each sampled
        token counts once among the rollouts of a session and of its forks. Raises `UsageError` for
        an unknown branch, and if there is none.
        """
        if name is None:
            if not self._own:
                raise UsageError(f"nothing was sampled yet in the session {self.session!r}")
            name = self._own[-1].id
        branch, segments = self.branch(name), self.segments(name)
        made = [(token, each.source) for each in segments for token in each.tokens]
        versions = [version for each in segments for version in each.versions]
        logprobs = [
            value for each in segments for value in each.logprobs or (0.0,) * len(each.tokens)
        ]
        sampled = [each for each in segments if each.source == "sampled"]
        is_known = all(each.logprobs is not None for each in sampled)
        first = next((at for at, (_, who) in enumerate(made) if who == "sampled"), len(made))
        least = branch.branch_point if own else 0
        counts = [who == "sampled" and at >= least for at, (_, who) in enumerate(made)]
        return Rollout(
            session=self.session,
            branch=name,
            model=branch.model,
            prompt_ids=tuple(token for token, _ in made[:first]),
            completion_ids=tuple(token for token, _ in made[first:]),
            loss_mask=tuple(map(int, counts[first:])),
            sources=tuple(who for _, who in made[first:]),
            logprobs=tuple(logprobs[first:]) if is_known else None,
            weights=tuple(versions[first:]),
            stop_reason=segments[-1].stop_reason if segments else None,
            rewards=dict(self.rewards),
        )

    def rollouts(self) -> tuple[Rollout, ...]:
        """Return the branches that this session made, each as one sequence; see `rollout`."""
        return tuple(self.rollout(each.id) for each in self._own)

    @property
    def _own(self) -> list[Branch]:
        return [each for each in self.branches if each.session == self.session]


def cut(segments: Sequence[Segment], length: int) -> list[Segment]:
    """Return the segments of the first tokens; a turn that is cut has no stop reason."""
    kept: list[Segment] = []
    for each in segments:
        if len(each.tokens) > length:
            each = replace(
                each,
                tokens=each.tokens[:length],
                logprobs=None if each.logprobs is None else each.logprobs[:length],
                weights=_cut_spans(each.weights, length),
                stop_reason=None,
                seconds=None,
            )
        if each.tokens:
            kept.append(each)
        length -= len(each.tokens)
    return kept


def _cut_spans(spans: Sequence[WeightsSpan], length: int) -> tuple[WeightsSpan, ...]:
    """Return the versions of the first tokens."""
    kept: list[WeightsSpan] = []
    for name, count in spans:
        if length > 0:
            kept.append(WeightsSpan(name, min(count, length)))
        length -= count
    return tuple(kept)
