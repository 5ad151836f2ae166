"""Where responses and conversations are kept, bounded in number, size and age."""

from caesura.runtime.server.responses.store.port import UNUSABLE, ResponseStore, StoreUnavailable
from caesura.runtime.server.responses.store.records import (
    Bounds,
    Conversation,
    NotStored,
    Stored,
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
