"""What a parser of one turn is to its reader."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from caesura.intercept.calls.events import Event


class TurnParser(ABC):
    """Reads one turn written in one turn-based format."""

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that all that follows belongs to it."""
        return False

    @property
    def behind_call(self) -> bool:
        """Whether nothing but spaces has followed the last call."""
        return False

    @abstractmethod
    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Read more of the turn."""

    @abstractmethod
    def end(self) -> Iterator[Event]:
        """Finish what is open, and give back as text what was no call.

        The turn is over, or the model begins to think: what it writes then is read like a new turn.
        """

    def take_unread(self) -> bytes:
        """Return what seemed part of a call and was not: it is to be read again, as text."""
        return b""
