"""The SQLite file of responses and conversations, bounded in number, size and age."""

from caesura.runtime.server.responses.store.records import (
    Bounds,
    Conversation,
    NotStored,
    Stored,
    history_of,
)
from caesura.runtime.server.responses.store.store import Store

__all__ = ["Bounds", "Conversation", "NotStored", "Store", "Stored", "history_of"]
