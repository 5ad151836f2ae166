"""The tree of a session's tokens is what the engine computed, whatever becomes of the history."""

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caesura import Agent, Session
from tests.runtime.trajectories.computed import ComputedEngine, check, facts_in, turns_in
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
        turns = zip(engine.computed.get(session, []), engine.facts.get(session, []), strict=True)
        assert facts_in(trajectory, session) == Counter(each for each in turns if each[1])


async def there_and_back(agent: Agent[Any, Any], session: Session) -> None:
    """Go on with a session elsewhere, whose trajectory begins with the tokens of its history."""
    async with agent.session(state=session.state()) as other:
        before = await other.trajectory()
        check(before)
        held = session._memory.record.context()
        assert not held or tuple(held) in [each.ids for each in before.rollouts()]
        await other.run("Hi.")
        check(await other.trajectory())
