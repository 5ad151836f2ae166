"""What the store keeps, responses with their items and conversations, and the port to it."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from caesura.runtime.errors import UsageError
from caesura.runtime.server.keys.key import Reach
from caesura.scheduler.messages import Message

Item = dict[str, Any]
"""An item as JSON-able data; `type` names its kind."""
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


class StoreUnavailable(Exception):
    """The store cannot be read or written now. The message is one sentence that says why."""


UNUSABLE = (sqlite3.Error, UsageError, StoreUnavailable)
"""What a store raises that cannot be used now."""


class ResponseStore(Protocol):
    """Responses and conversations. All methods block; any thread may call them.

    They raise `NotStored` for an id without a record within `reach`, and one of `UNUSABLE`.
    """

    def put(self, stored: Stored) -> None:
        """Keep a response, in place of an earlier state of it that is not final.

        A final state also joins the response's conversation, if that still exists.
        """
        ...

    def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response."""
        ...

    def chain(self, response_id: str, reach: Reach) -> list[Stored]:
        """Return a response behind all that it continues, the earliest first.

        All of them count as used. Raises `NotStored` also for an earlier response that is missing.
        """
        ...

    def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response with its items."""
        ...

    def item(self, item_id: str, reach: Reach) -> Item:
        """Return the item of that id, of any response or conversation."""
        ...

    def put_conversation(self, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Keep a conversation, or its changed metadata; `items` join its items.

        A conversation that is there stays with its tenant.
        """
        ...

    def conversation(self, conversation_id: str, reach: Reach) -> Conversation:
        """Return a conversation without its items."""
        ...

    def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation, the earliest first."""
        ...

    def add_items(self, conversation_id: str, items: Sequence[Item], reach: Reach) -> None:
        """Append items to a conversation."""
        ...

    def delete_item(self, conversation_id: str, item_id: str, reach: Reach) -> None:
        """Delete an item of a conversation."""
        ...

    def delete_conversation(self, conversation_id: str, reach: Reach) -> None:
        """Delete a conversation with its items; its responses stay."""
        ...

    def renew(self) -> None:
        """Let other servers over the same store know that this one lives, if it has used it."""
        ...

    def close(self) -> None:
        """Give back files and connections; the next use opens them again."""
        ...
