"""The process that plays: it holds one game after another, for one session at a time.

Run by `caesura.tools.worker`. ALFWorld and what comes with it are imported here and nowhere else.
"""

from typing import Any, Protocol

from caesura.tools.environment.view import View


class Games(Protocol):
    """Games by number, of which one is played at a time."""

    def reset(self, number: int) -> View:
        """Start game `number` from its beginning."""
        ...

    def step(self, action: str) -> View:
        """Do something in it; any text may come."""
        ...


class _Playing:
    """The games of this process, once they are opened."""

    games: Games | None = None


def prepare(options: dict[str, Any]) -> str:
    """Import what the games need and check the options, which are `Settings` as JSON.

    Returns "". Raises ValueError for options that make no sense together.
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
    """Do something in the game that was started last."""
    return _games().step(action)


def _games() -> Games:
    if _Playing.games is None:
        raise RuntimeError("the games were not prepared")
    return _Playing.games
