"""What a conversation is made of: calls, exchanges and the tools that they need."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

from .arithmetic import calculate

NO_TOOL = "I have no tool for that."


@dataclass(frozen=True)
class Call:
    """One tool call and the text that the tool answers."""

    name: str
    arguments: dict[str, Any]
    result: str

    @property
    def key(self) -> str:
        """Name and arguments as text, the identity of a call."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


Piece = str | Call


@dataclass(frozen=True)
class Exchange:
    """A user's question, the assistant turns that call tools, and the final answer.

    ``steps`` holds one list of parallel calls per assistant turn. ``answer`` is text in which a
    ``Call`` stands where the model calls in the middle of its sentence. ``values`` are what a
    right answer must contain; without values only the exact answer is right.
    """

    task: str
    user: str
    answer: tuple[Piece, ...]
    steps: tuple[tuple[Call, ...], ...] = ()
    values: tuple[str, ...] = ()
    needs: frozenset[str] = field(default=frozenset())

    @property
    def calls(self) -> list[Call]:
        """Every call of the exchange in order, in-line calls last."""
        made = [call for step in self.steps for call in step]
        return made + [piece for piece in self.answer if isinstance(piece, Call)]

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools without which this exchange cannot be answered."""
        return self.needs | {call.name for call in self.calls}


def compute(rng: random.Random, expression: str) -> Call:
    """Return a calculator call; calculators differ in how many decimal places they give."""
    places = rng.choice((2, 4, 6, 10, 10, 15))
    return Call("calculator", {"expression": expression}, calculate(expression, places))


def exact(expression: str) -> Call:
    """Return a calculator call with a result of at most ten decimal places."""
    return Call("calculator", {"expression": expression}, calculate(expression))


def plain(call: Call) -> bool:
    """Tell whether a result is short and no error, so that a sentence can go on with it."""
    return not call.result.startswith("error") and len(call.result) <= 12


def vary(rng: random.Random, text: str) -> str:
    """Write a question as different users would: politely, in lower case, without its mark."""
    roll = rng.random()
    if roll < 0.07:
        text = (
            rng.choice(("Please tell me: ", "Hi, ", "Hello! ", "Quick question: ", "Hey, ")) + text
        )
    elif roll < 0.11 and text[-1] in "?.":
        text = text[:-1] + rng.choice((", please", " please")) + text[-1]
    elif roll < 0.14:
        text += rng.choice((" Thanks!", " Thank you.", " Answer briefly.", " Use your tools."))
    if rng.random() < 0.10:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.10:
        text = text.rstrip("?.!")
    return text


def fill(rng: random.Random, templates: tuple[str, ...], **words: Any) -> str:
    """Fill one of the templates and start it with a capital letter."""
    text = rng.choice(templates).format(**words)
    return text[0].upper() + text[1:]


def contains(text: str, value: str) -> bool:
    """Tell whether ``value`` stands in ``text`` and is no part of a longer number or word."""
    return bool(re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text))
