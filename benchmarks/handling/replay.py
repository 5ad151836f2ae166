"""Recorded runs of coding agents, scaled to the model's context (see benchmarks/data/SOURCE.md).

Contexts and what is decoded are scaled by the same factor, pauses by another. Pauses are a tool's
alone: the runs lie between two messages of a person. The longest are capped, since a build of an
hour would make a run of an hour. What sessions share of their prompts is not recorded, so they
share nothing here. Runs are drawn at random, again and again: nothing is known of when they came.
"""

import random
from pathlib import Path

from benchmarks.handling.workload import Segment
from caesura.simulator.workload.draw import Shape
from caesura.simulator.workload.replay import KIND as TOOL
from caesura.simulator.workload.replay import Replay as Sessions
from caesura.simulator.workload.replay import read_runs

__all__ = ["LONGEST_PAUSE_SECONDS", "TOOL", "Replay"]

SAMPLE = Path(__file__).parents[1] / "data" / "agent_runs.jsonl.gz"
LONGEST_PAUSE_SECONDS = 60.0


class Replay:
    """Draws recorded runs."""

    def __init__(self, token_scale: float, pause_scale: float, context_tokens: int) -> None:
        shape = Shape(token_scale, 1.0, pause_scale, LONGEST_PAUSE_SECONDS, context_tokens)
        self._draw = Sessions(read_runs(SAMPLE), shape)

    def draw(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Draw the next session."""
        return self._draw(rng)
