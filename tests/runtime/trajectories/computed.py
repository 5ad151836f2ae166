"""A scripted engine with tokens of its own, which notes every turn that it computes."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from caesura import ScriptedEngine
from caesura.runtime.testing.scripted_engine import ScriptedSession
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.session_log import (
    LoggedTurn,
    SampledFacts,
    SessionLog,
    TurnOutcome,
    WeightsSpan,
)
from caesura.trajectories import Branch, Trajectory

Turn = tuple[tuple[int, ...], tuple[int, ...]]
"""The whole context with which a turn was sent, and what was sampled behind it."""
Facts = tuple[tuple[float, str], ...]
"""The log probability of each sampled token of a turn, and the version of the weights."""
CHANGES = 0.2
"""How likely the weights change between two tokens."""


class ComputedEngine(ScriptedEngine):
    """Logs prompts of random tokens of a small vocabulary, so that histories begin alike.

    With `rewrites`, a chat template rewrites earlier turns now and then. What it samples comes in
    pieces, between which the weights may change.
    """

    def __init__(self, script: Any, rng: random.Random, rewrites: float = 0.0) -> None:
        super().__init__(script)
        self.rng = rng
        self.rewrites = rewrites
        self.computed: dict[str, list[Turn]] = {}
        """The turns of each session of an agent, in order."""
        self.facts: dict[str, list[Facts]] = {}
        """Those of their sampled tokens."""
        self.version = 0
        """That of the weights, which `sampled` may change."""

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> ScriptedSession:
        assert log is not None
        name = spec.origin.session
        turns, facts = self.computed.setdefault(name, []), self.facts.setdefault(name, [])
        return super().open(spec, _Noted(log, self, turns, facts))

    def sampled(self, context: Sequence[int]) -> float:
        """Return the log probability of a context's last token; the weights change now and then."""
        if self.rng.random() < CHANGES:
            self.version += 1
        return -(crc32(repr((self.version, *context)).encode()) >> 8) / 2**20  # 32 bits hold it


class _Noted:
    """Stands before the log of one session of the engine."""

    def __init__(
        self, log: SessionLog, engine: ComputedEngine, turns: list[Turn], facts: list[Facts]
    ) -> None:
        self._log = log
        self._engine = engine
        self._computed = turns
        self._facts = facts
        self._context: list[int] = []
        for turn in log.turns:
            self._context = [] if turn.replaces else self._context
            self._context += [*turn.appended, *turn.sampled]

    @property
    def key(self) -> str:
        return self._log.key

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        return self._log.turns

    def begin(self, turn: LoggedTurn) -> None:
        rng, is_first = self._engine.rng, not self._context
        new = [rng.choice((1, 2)) for _ in turn.appended]
        if not is_first and rng.random() < self._engine.rewrites:
            kept = rng.randrange(len(self._context) + 1)
            rewritten = [rng.choice((1, 2)) for _ in range(rng.randrange(4))]
            new, is_first = [*self._context[:kept], *rewritten, *new], True
        self._context = new if is_first else [*self._context, *new]
        self._computed.append((tuple(self._context), ()))
        self._facts.append(())
        self._log.begin(replace(turn, appended=new, replaces=is_first))

    def sampled(self, tokens: Sequence[int]) -> None:
        left = list(tokens)
        while left:
            size = self._engine.rng.randint(1, len(left))
            self._piece(left[:size])
            del left[:size]

    def _piece(self, tokens: list[int]) -> None:
        context, before = self._computed[-1]
        self._computed[-1] = (context, (*before, *tokens))
        facts: list[tuple[float, str]] = []
        for token in tokens:
            self._context.append(token)
            facts.append((self._engine.sampled(self._context), str(self._engine.version)))
        self._facts[-1] += tuple(facts)
        spans = tuple(WeightsSpan(version, 1) for _, version in facts)
        self._log.sampled(tokens, SampledFacts([value for value, _ in facts], spans))

    def end(self, outcome: TurnOutcome) -> None:
        self._log.end(outcome)


def turns_in(trajectory: Trajectory, session: str) -> "Counter[Turn]":
    """Return the turns that the branches of one session hold, with the tokens before each."""
    found: Counter[Turn] = Counter()
    for branch in trajectory.branches:
        before = list(trajectory.rollout(branch.id).ids[: branch.branch_point])
        for segment in branch.segments:
            if segment.source == "sampled" and branch.session == session:
                found[tuple(before), segment.tokens] += 1
            before += segment.tokens
    return found


def facts_in(trajectory: Trajectory, session: str) -> "Counter[tuple[Turn, Facts]]":
    """Return what is told of the sampled tokens of one session's turns."""
    found: Counter[tuple[Turn, Facts]] = Counter()
    for branch in trajectory.branches:
        before = list(trajectory.rollout(branch.id).ids[: branch.branch_point])
        for segment in branch.segments:
            if segment.source == "sampled" and branch.session == session:
                facts = tuple(zip(segment.logprobs or (), segment.versions, strict=True))
                found[(tuple(before), segment.tokens), facts] += 1
            before += segment.tokens
    return found


def check(trajectory: Trajectory) -> None:
    """Check what holds of all trajectories."""
    known: set[str] = set()
    for branch in trajectory.branches:
        rollout = trajectory.rollout(branch.id)
        assert branch.id not in known and (branch.parent is None or branch.parent in known)
        known.add(branch.id)
        shared = rollout.ids[: branch.branch_point]
        if branch.parent is None:
            assert branch.branch_point == 0
        else:
            parent = trajectory.rollout(branch.parent)
            assert 0 < branch.branch_point == len(shared)
            assert shared == parent.ids[: branch.branch_point]
        assert branch.segments and branch.segments[-1].source == "sampled"
        assert all(each.tokens for each in branch.segments)
        check_facts(trajectory, branch)
        own = [bit for each in branch.segments for bit in each.loss_mask]
        behind = len(rollout.prompt_ids)
        assert [0] * behind + list(rollout.loss_mask) == [0] * branch.branch_point + own
        whole = trajectory.rollout(branch.id, own=False)
        assert whole.ids == rollout.ids and whole.prompt_ids == rollout.prompt_ids
        assert list(whole.loss_mask) == [int(each == "sampled") for each in whole.sources]
        assert "sampled" not in [
            each.source for each in trajectory.segments(branch.id)[: 1 if rollout.prompt_ids else 0]
        ]


def check_facts(trajectory: Trajectory, branch: Branch) -> None:
    """Check that sampled tokens alone have log probabilities and versions, one for each."""
    for segment in branch.segments:
        assert len(segment.versions) == len(segment.tokens)
        assert sum(count for _, count in segment.weights) in (0, len(segment.tokens))
        if segment.source != "sampled":
            assert segment.logprobs is None and segment.weights == ()
        elif segment.logprobs is not None:
            assert len(segment.logprobs) == len(segment.tokens)
    whole = trajectory.rollout(branch.id, own=False)
    assert len(whole.weights) == len(whole.loss_mask)
    if whole.logprobs is not None:
        pairs = zip(whole.logprobs, whole.weights, whole.loss_mask, strict=True)
        assert all(bit or (value, version) == (0.0, None) for value, version, bit in pairs)
