"""The process that plays: it runs one game after another, for one session at a time.

`caesura.tools.worker` runs it. Only this process imports ALFWorld and its dependencies. It answers
with a `View`, which `shown` puts into a text for the model.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypedDict

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


class Games(Protocol):
    """Games by number, of which one is played at a time."""

    def reset(self, number: int) -> View:
        """Start game `number` from its beginning."""
        ...

    def step(self, action: str) -> View:
        """Perform an action in the current game; any text is accepted."""
        ...


class _Playing:
    """The games of this process, once they are prepared."""

    games: Games | None = None


def prepare(options: dict[str, Any]) -> str:
    """Import what the games need and check the options, which are `Settings` as JSON.

    Returns "". Raises ValueError for options that contradict each other.
    """
    if options["backend"] == "gymnasium":
        from caesura.tools.environment.gymnasium import GymnasiumGames

        _Playing.games = GymnasiumGames(options)
    else:
        from caesura.tools.environment.alfworld import AlfworldGames

        _Playing.games = AlfworldGames(options)
    return ""


def reset(number: int) -> View:
    """Start game `number`."""
    return _games().reset(number)


def act(action: str) -> View:
    """Perform an action in the game that was started last."""
    return _games().step(action)


def _games() -> Games:
    if _Playing.games is None:
        raise RuntimeError("the games were not prepared: call prepare first")
    return _Playing.games
