"""Where responses and conversations are kept, bounded in number, size and age."""

from caesura.runtime.server.responses.store.records import (
    UNUSABLE,
    Bounds,
    Conversation,
    NotStored,
    ResponseStore,
    Stored,
    StoreUnavailable,
    history_of,
)
from caesura.runtime.server.responses.store.store import Store

__all__ = [
    "UNUSABLE",
    "Bounds",
    "Conversation",
    "NotStored",
    "ResponseStore",
    "Store",
    "StoreUnavailable",
    "Stored",
    "history_of",
]
