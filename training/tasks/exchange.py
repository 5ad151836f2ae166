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


_COMMANDS = frozenset(
    (
        "act", "ask", "calculate", "call", "compute", "convert", "create", "describe", "draw",
        "evaluate", "find", "generate", "give", "look", "make", "paint", "plot", "read", "render",
        "reset", "run", "say", "search", "show", "sketch", "speak", "start", "take", "tell", "turn",
        "use", "write",
    )
)  # fmt: skip
_OPENERS = frozenset(
    (
        "a", "an", "at", "can", "do", "does", "how", "if", "in", "is", "on", "one", "the",
        "there", "what", "when", "where", "which", "who", "why", "will",
    )
)  # fmt: skip
_GREETINGS = ("Hi, ", "Hello! ", "Hey, ", "Hi! ", "Hello, ", "Hey! ")
_LEADS = (
    "Please tell me: ", "Quick question: ", "Can you tell me: ", "Tell me, ", "One question: ",
    "I would like to know: ", "So, ", "Okay, ",
)  # fmt: skip
_WISHES = (
    "Please {t}", "Can you {t}", "Could you {t}", "Could you please {t}", "Can you please {t}",
    "I want you to {t}", "Would you {t}", "I would like you to {t}", "Now {t}",
)  # fmt: skip
_TAILS = (" Thanks!", " Thank you.", " Answer briefly.", " Use your tools.", " Thanks.")


def _wished(rng: random.Random, text: str) -> str:
    """Write a command as a wish: "Can you draw a red circle?"."""
    wish = rng.choice(_WISHES).format(t=text[0].lower() + text[1:])
    asks = wish.startswith(("Can", "Could", "Would"))
    return wish[:-1] + "?" if asks and wish[-1] == "." else wish


def _inside(text: str) -> str:
    """Write a question as it stands behind a comma; a name keeps its capital."""
    first = re.split(r"\W", text, maxsplit=1)[0].lower()
    return text[0].lower() + text[1:] if first in _COMMANDS | _OPENERS else text


def vary(rng: random.Random, text: str) -> str:
    """Write a question as different users would: politely, in lower case, without its mark."""
    command = re.split(r"\W", text, maxsplit=1)[0].lower() in _COMMANDS and ". " not in text
    roll = rng.random()
    if roll < 0.05:
        text = rng.choice(_GREETINGS) + _inside(text)
    elif roll < 0.13:
        text = _wished(rng, text) if command else rng.choice(_LEADS) + _inside(text)
    elif roll < 0.17 and text[-1] in "?.":
        text = text[:-1] + rng.choice((", please", " please")) + text[-1]
    elif roll < 0.20:
        text += rng.choice(_TAILS)
    if rng.random() < 0.15:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15:
        text = text.rstrip("?.!")
    return text


def fill(rng: random.Random, templates: tuple[str, ...], **words: Any) -> str:
    """Fill one of the templates and start it with a capital letter."""
    text = rng.choice(templates).format(**words)
    return text[0].upper() + text[1:]


def contains(text: str, value: str) -> bool:
    """Tell whether ``value`` stands in ``text`` and is no part of a longer number or word."""
    return bool(re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text))
