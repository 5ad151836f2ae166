"""The port to where responses and conversations are kept: `ResponseStore`."""

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from caesura.runtime.errors import UsageError
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.items.given import Item
from caesura.runtime.server.responses.store.records import Conversation, Stored


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
