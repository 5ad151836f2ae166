"""The held-out scenarios: drawn from their own seed stream and kept out of the training data."""

from __future__ import annotations

import random
from dataclasses import dataclass

import segments
from tasks.conversation import TASKS, Conversation, conversation
from tasks.exchange import Exchange

# Tasks whose questions are a fixed list: only the setting around them is new in a scenario.
FIXED = ("none", "articles")


@dataclass(frozen=True)
class Scenario:
    """A conversation whose last exchange the model has to play; the rest is given."""

    talk: Conversation
    asked: Exchange

    @property
    def given(self) -> list[segments.Segment]:
        """The pieces of the conversation up to the point where the model's turn starts."""
        before = Conversation(self.talk.system, self.talk.tools, self.talk.exchanges[:-1])
        if not before.exchanges:
            text = segments.prompt(self.talk.system, self.talk.tools, self.asked.user)
            return [segments.Segment(text, False)]
        pieces = segments.conversation_segments(before)
        return [*pieces, segments.Segment(segments.user_turn(self.asked.user), False)]


def scenario(rng: random.Random, task: str) -> Scenario:
    """Return a scenario of the task; every fourth has an exchange before the one that counts."""
    while True:
        talk = conversation(rng, task, turns=2 if rng.random() < 0.25 else 1)
        if talk.exchanges[-1].task == task:
            return Scenario(talk, talk.exchanges[-1])


def scenarios(count: int, seed: int = 0) -> dict[str, list[Scenario]]:
    """Return ``count`` scenarios of every task."""
    chosen = {}
    for task in TASKS:
        rng = random.Random(f"held out {seed} {task}")
        chosen[task] = [scenario(rng, task) for _ in range(count)]
    return chosen


def distinct(text: str, task: str = "") -> bool:
    """Tell whether a question is one of very many, so that it can be held out at all.

    It is where it names a number, a name, a picture or a text to speak.
    """
    named = any(c.isdigit() for c in text) or any(c.isupper() for c in text[1:])
    return named or task in ("image", "speech")


def prompts(count: int, seed: int = 0) -> frozenset[str]:
    """Return the questions that training must not contain.

    "Hello", "Who invented the piano?" or "What time is it?" cannot be held out: there, only the
    setting is new.
    """
    found = scenarios(count, seed)
    asked = (s.asked for task, group in found.items() if task not in FIXED for s in group)
    return frozenset(said.user for said in asked if distinct(said.user, said.task))
