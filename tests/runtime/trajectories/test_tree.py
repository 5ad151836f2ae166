"""The tree of a session's tokens is what the engine computed, whatever becomes of the history."""

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caesura import Agent, Session
from caesura.trajectories import Trajectory
from tests.runtime.trajectories.computed import ComputedEngine, turns_in
from tests.runtime.trajectories.histories import HISTORIES, Step, model, played


@settings(deadline=None, max_examples=150)
@given(
    HISTORIES,
    st.randoms(use_true_random=False),
    st.sampled_from([0.0, 0.4]),
)
def test_the_tree_holds_every_turn_and_no_other(
    steps: list[Step], rng: random.Random, rewrites: float
) -> None:
    engine = ComputedEngine(model, rng, rewrites)
    for session, trajectory in asyncio.run(played(engine, steps, there_and_back)):
        check(trajectory)
        computed = Counter(each for each in engine.computed.get(session, []) if each[1])
        assert turns_in(trajectory, session) == computed


async def there_and_back(agent: Agent[Any, Any], session: Session) -> None:
    """Go on with a session elsewhere, whose trajectory begins with the tokens of its history."""
    async with agent.session(state=session.state()) as other:
        before = await other.trajectory()
        check(before)
        held = session._memory.record.context()
        assert not held or tuple(held) in [each.ids for each in before.rollouts()]
        await other.run("Hi.")
        check(await other.trajectory())


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
