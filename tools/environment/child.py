"""The process that plays: it runs one game after another, for one session at a time.

`caesura.tools.worker` runs it. Only this process imports ALFWorld and its dependencies.
"""

from typing import Any, Protocol

from caesura.tools.environment.view import View


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
        from caesura.tools.environment.alfworld.game import AlfworldGames

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
