"""Recorded runs of coding agents, scaled to the model's context (see benchmarks/data/SOURCE.md).

Contexts and what is decoded are scaled by the same factor, pauses by another. Pauses are a tool's
alone: the runs lie between two messages of a person. The longest are capped, since a build of an
hour would make a run of an hour. What sessions share of their prompts is not recorded, so they
share nothing here. Runs are drawn at random, again and again: nothing is known of when they came.
"""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.handling.workload import Segment, fit

SAMPLE = Path(__file__).parents[1] / "data" / "agent_runs.jsonl.gz"
LONGEST_PAUSE_SECONDS = 60.0
TOOL = "agent"


class Replay:
    """Draws recorded runs."""

    def __init__(self, token_scale: float, pause_scale: float, context_tokens: int) -> None:
        self._token_scale = token_scale
        self._pause_scale = pause_scale
        self._context_tokens = context_tokens
        with gzip.open(SAMPLE, "rt") as lines:
            self._runs: list[list[Any]] = [json.loads(line)["turns"] for line in lines]

    def draw(self, rng: random.Random) -> tuple[str, list[Segment]]:
        """Draw the next session."""
        turns = rng.choice(self._runs)
        given = [turns[0][0]]
        given += [after[0] - before[0] - before[1] for before, after in pairwise(turns)]
        segments = [
            Segment(
                self._tokens(returned),
                self._tokens(decoded),
                TOOL,
                min(pause, LONGEST_PAUSE_SECONDS) * self._pause_scale,
            )
            for returned, (_, decoded, pause) in zip(given, turns, strict=True)
        ]
        return TOOL, fit(segments, self._context_tokens)

    def _tokens(self, unscaled: int) -> int:
        return max(1, round(unscaled * self._token_scale))
