"""Agents that start several sub-agents at once, and wait for the last of them.

A parent plans, starts its sub-agents with one call, and goes on with all their answers. The prompts
of its sub-agents begin alike, with their instructions. A sub-agent calls tools of its own. All
numbers are choices made here, since no trace with times of sub-agents was at hand.
"""

import random

from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import (
    Moments,
    Shape,
    SubAgent,
    Team,
    fitting,
    geometric,
    lognormal_of,
)

PARENT, CHILD = "parent", "sub-agent"

CALL = "agents"
"""The tool of a parent that waits for its sub-agents."""

TOOLS = {"search": (1.5, 1.5), "shell": (6.0, 9.0)}
"""The tools of sub-agents, and the mean and standard deviation of their seconds."""

PROMPT: Moments = (3000, 1500)
PLAN: Moments = (250, 120)
INSTRUCTIONS = 1500
"""The tokens with which the prompts of a parent's sub-agents begin alike."""
TASK: Moments = (200, 100)
STEP: Moments = (90, 60)
RESULT: Moments = (500, 500)
ANSWER: Moments = (220, 120)
REPORT: Moments = (400, 200)
CALLS = 4.0
"""The mean number of calls of a sub-agent, at least one; geometric."""
ROUNDS = 1.5
"""The mean number of times that a parent starts sub-agents, at least one; geometric."""


class SubAgents:
    """Draws parents that start `fewest` to `most` sub-agents at a time, each number as likely.

    Raises `ValueError` for a context that holds no parent, or for fewer than one sub-agent.
    """

    def __init__(self, shape: Shape, fewest: int = 2, most: int = 8) -> None:
        if not 1 <= fewest <= most:
            raise ValueError(f"a parent needs 1 <= fewest <= most, got {fewest} and {most}")
        self._shape = shape
        self._sizes = (fewest, most)

    def __call__(self, rng: random.Random) -> Team:
        """Return the next parent with its sub-agents."""
        agents: list[SubAgent] = []
        segments = fitting(lambda: self._parent(rng, agents), self._shape, fewest=1)
        calls = len(segments) - 1
        return Team(PARENT, segments, tuple(one for one in agents if one.call < calls))

    def _parent(self, rng: random.Random, agents: list[SubAgent]) -> list[Segment]:
        """Return a parent's segments; `agents` are replaced by its sub-agents."""
        agents.clear()
        segments: list[Segment] = []
        given = self._given(rng, PROMPT)
        for call in range(geometric(rng, ROUNDS)):
            own = [self._child(rng, call) for _ in range(rng.randint(*self._sizes))]
            segments.append(Segment(given, self._decoded(rng, PLAN), CALL))
            agents += own
            given = sum(one.segments[-1].decode_tokens for one in own)
        return [*segments, Segment(given, self._decoded(rng, REPORT))]

    def _child(self, rng: random.Random, call: int) -> SubAgent:
        common = self._shape.given(rng, INSTRUCTIONS)
        segments = fitting(lambda: self._steps(rng, common), self._shape, fewest=1)
        return SubAgent(CHILD, segments, call, common)

    def _steps(self, rng: random.Random, common: int) -> list[Segment]:
        """Return a sub-agent's segments; its prompt begins with `common` instructions."""
        given, segments = common + self._given(rng, TASK), []
        for _ in range(geometric(rng, CALLS)):
            tool = rng.choice(list(TOOLS))
            seconds = self._shape.seconds(lognormal_of(rng, TOOLS[tool]))
            segments.append(Segment(given, self._decoded(rng, STEP), tool, seconds))
            given = self._given(rng, RESULT)
        return [*segments, Segment(given, self._decoded(rng, ANSWER))]

    def _given(self, rng: random.Random, moments: Moments) -> int:
        return self._shape.given(rng, lognormal_of(rng, moments))

    def _decoded(self, rng: random.Random, moments: Moments) -> int:
        return self._shape.decoded(rng, lognormal_of(rng, moments))
