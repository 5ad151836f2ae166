"""Prompts of known lengths, and a predictor that is trained on them."""

from collections.abc import Sequence
from random import Random

from caesura.scheduler.prompt_lengths.learner import Linear
from caesura.scheduler.prompt_lengths.predictor import (
    LengthPredictor,
    train_predictor,
    width_of,
)
from caesura.scheduler.prompt_lengths.training import Plan, Row

WORDS = {"brief": 20, "story": 400, "list": 120}


def told(count: int = 300, seed: int = 0) -> list[Row]:
    """Prompts whose only word that matters is one of three."""
    random = Random(seed)
    rows = []
    for index in range(count):
        word = random.choice(sorted(WORDS))
        prompt = f"please write a {word} about thing{index} {random.choice('abcdef')}"
        rows.append(Row(prompt, (int(WORDS[word] * random.uniform(0.9, 1.1)),)))
    return rows


def trained(objective: str, rows: Sequence[Row]) -> LengthPredictor:
    learner = Linear(width_of(objective, rows))
    return train_predictor(learner, objective, rows, Plan(epochs=6, rate=0.1))
