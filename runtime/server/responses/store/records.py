"""What the store keeps: responses with their items and messages, and conversations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.server.responses.items.given import Item
from caesura.scheduler.messages import Message

MB = 2**20
DAY_SECONDS = 24 * 3600.0


class NotStored(Exception):
    """Nothing is stored under an id; `missing` is that id, perhaps of an earlier response."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"nothing is stored under {missing[:80]!r}")
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that the store keeps. What was used least recently is deleted first."""

    max_records: int = 100_000
    """Responses and conversations together."""
    max_bytes: int = 512 * MB
    """Bytes of their text, without the file's own overhead."""
    max_age_seconds: float = 30 * DAY_SECONDS
    """Seconds since the last use."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One response as it is kept.

    `messages` are the chat messages of its input and of its run, without instructions. With those
    of the earlier responses they are the history of the next one.
    """

    resource: dict[str, Any]
    """The response object without its output."""
    input: Sequence[Item] = ()
    output: Sequence[Item] = ()
    messages: Sequence[Message] = ()
    covers_previous: bool = False
    """Whether `messages` begin with those of the previous response, whose run went on in this."""
    tenant: str = ""
    """The digest of the API key that it belongs to; empty if nobody's."""

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.resource["id"])

    @property
    def previous(self) -> str | None:
        """The id of the response that this one continues."""
        return self.resource.get("previous_response_id")

    @property
    def conversation(self) -> str | None:
        """The id of the response's conversation."""
        told = self.resource.get("conversation")
        return None if told is None else str(told["id"])

    def public(self) -> dict[str, Any]:
        """Return the response object."""
        return self.resource | {"output": list(self.output)}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    """The digest of the API key that it belongs to; empty if nobody's."""

    def public(self) -> dict[str, Any]:
        """Return OpenAI's conversation object."""
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created_at,
            "metadata": self.metadata,
        }


def history_of(chain: Sequence[Stored]) -> list[Message]:
    """Return the chat messages of a chain of responses, the earliest first."""
    parts: list[Sequence[Message]] = []
    for stored in chain:
        if stored.covers_previous and parts:
            parts.pop()
        parts.append(stored.messages)
    return [message for part in parts for message in part]
