"""What a game shows after each step, and its text for the model."""

from collections.abc import Sequence
from typing import Literal, TypedDict

MAX_OBSERVATION_CHARACTERS = 2000
MAX_ACTIONS = 40
MAX_ACTIONS_CHARACTERS = 600


class View(TypedDict):
    """What a game shows, as JSON-able data."""

    text: str
    actions: list[str]
    """The possible actions, the most useful first."""
    outcome: Literal["won", "lost"] | None
    """None: the game goes on."""


def shown(view: View) -> str:
    """Return the observation, and a last line with the possible actions or the outcome."""
    text = view["text"].strip()
    if len(text) > MAX_OBSERVATION_CHARACTERS:
        text = f"{text[:MAX_OBSERVATION_CHARACTERS]}... (cut)"
    last = you_can(view["actions"]) if view["outcome"] is None else f"Done: {view['outcome']}"
    return f"{text}\n{last}"


def you_can(actions: Sequence[str]) -> str:
    """Return `You can: look, go to fridge 1, and 12 more`, within the limits."""
    fit: list[str] = []
    left = MAX_ACTIONS_CHARACTERS
    for action in actions[:MAX_ACTIONS]:
        left -= len(action) + 2
        if left < 0:
            break
        fit.append(action)
    if len(fit) < len(actions):
        fit.append(f"and {len(actions) - len(fit)} more")
    return f"You can: {', '.join(fit)}"
