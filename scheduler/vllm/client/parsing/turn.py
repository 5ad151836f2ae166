"""The interface of parsers for one turn."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from caesura.intercept.calls.events import Event


class TurnParser(ABC):
    """Parses one turn written in one turn-based format."""

    reasoning_tokens = 0
    """How many tokens of reasoning were read, if the parser itself tells reasoning apart."""

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that further text belongs to it."""
        return False

    @property
    def behind_call(self) -> bool:
        """Whether only spaces have followed the last call."""
        return False

    @property
    def held_characters(self) -> int:
        """How many characters of the turn `end` reads at once, or a few more."""
        return 0

    @abstractmethod
    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""

    @abstractmethod
    def end(self) -> Iterator[Event]:
        """Finish an open call, and yield held text as text events.

        The turn has ended, or the model begins to think. Text after that is parsed like a new turn.
        """

    def take_unread(self) -> bytes:
        """Return bytes that seemed part of a call but were not, to be parsed again as text."""
        return b""
