"""A scripted engine with tokens of its own, which notes every turn that it computes."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from caesura import ScriptedEngine
from caesura.runtime.testing.scripted_engine import ScriptedSession
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from caesura.trajectories import Trajectory

Turn = tuple[tuple[int, ...], tuple[int, ...]]
"""The whole context with which a turn was sent, and what was sampled behind it."""


class ComputedEngine(ScriptedEngine):
    """Logs prompts of random tokens of a small vocabulary, so that histories begin alike.

    With `rewrites`, a chat template rewrites earlier turns now and then.
    """

    def __init__(self, script: Any, rng: random.Random, rewrites: float = 0.0) -> None:
        super().__init__(script)
        self.rng = rng
        self.rewrites = rewrites
        self.computed: dict[str, list[Turn]] = {}
        """The turns of each session of an agent, in order."""

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> ScriptedSession:
        assert log is not None
        turns = self.computed.setdefault(spec.origin.session, [])
        return super().open(spec, _Noted(log, self, turns))


class _Noted:
    """Stands before the log of one session of the engine."""

    def __init__(self, log: SessionLog, engine: ComputedEngine, turns: list[Turn]) -> None:
        self._log = log
        self._engine = engine
        self._computed = turns
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
        self._log.begin(replace(turn, appended=new, replaces=is_first))

    def sampled(self, tokens: Sequence[int]) -> None:
        self._context += tokens
        context, before = self._computed[-1]
        self._computed[-1] = (context, (*before, *tokens))
        self._log.sampled(tokens)

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
        own = [bit for each in branch.segments for bit in each.loss_mask]
        behind = len(rollout.prompt_ids)
        assert [0] * behind + list(rollout.loss_mask) == [0] * branch.branch_point + own
        whole = trajectory.rollout(branch.id, own=False)
        assert whole.ids == rollout.ids and whole.prompt_ids == rollout.prompt_ids
        assert list(whole.loss_mask) == [int(each == "sampled") for each in whole.sources]
        assert "sampled" not in [
            each.source for each in trajectory.segments(branch.id)[: 1 if rollout.prompt_ids else 0]
        ]
