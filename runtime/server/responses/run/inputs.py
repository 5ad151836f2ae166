"""Finding what requests name: items, earlier responses and conversations."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.items.given import REFERENCE, Item
from caesura.runtime.server.responses.items.messages import messages_of
from caesura.runtime.server.responses.request.plan import History
from caesura.runtime.server.responses.request.schema import Continued
from caesura.runtime.server.responses.run.resource import FINAL
from caesura.runtime.server.responses.store import (
    UNUSABLE,
    NotStored,
    ResponseStore,
    Stored,
    history_of,
)

T = TypeVar("T")

LOG = logging.getLogger(__name__)


class Inputs:
    """What is stored, as requests name it. What is not within `reach` is not there."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    @property
    def store(self) -> ResponseStore:
        """The store of responses and conversations."""
        return self._store

    async def resolved(self, items: Sequence[Item], reach: Reach) -> list[Item]:
        """Return the items, with references replaced by the items that they name."""
        return [
            await self._referenced(item["id"], reach) if item["type"] == REFERENCE else item
            for item in items
        ]

    async def _referenced(self, item_id: str, reach: Reach) -> Item:
        try:
            return await self.stored(self._store.item, item_id, reach)
        except NotStored:
            message = f"input: there is no item with the id {item_id[:80]!r}."
            raise ApiError(404, message, param="input", code="item_not_found") from None

    async def history(
        self, request: Continued, recent: Mapping[str, Stored], reach: Reach
    ) -> History:
        """Return what came before a request; raise `ApiError` 404 if it is not stored."""
        if request.conversation is not None:
            items = await self.conversation_items(request.conversation, reach)
            return History(messages_of(items), items)
        if request.previous_response_id is None:
            return History()
        chain = await self._chain(request.previous_response_id, recent, reach)
        if chain[-1].resource["status"] not in FINAL:
            message = "previous_response_id names a response that is not complete: wait for it."
            raise invalid(message, "previous_response_id")
        items = [item for each in chain for item in (*each.input, *each.output)]
        return History(history_of(chain), items)

    async def _chain(
        self, response_id: str, recent: Mapping[str, Stored], reach: Reach
    ) -> list[Stored]:
        newest: list[Stored] = []
        following: str | None = response_id
        while following is not None and following in recent:
            newest.append(recent[following])
            following = newest[-1].previous
        if following is None:
            return newest[::-1]
        try:
            return [*await self.stored(self._store.chain, following, reach), *newest[::-1]]
        except NotStored as error:
            raise ApiError(
                404,
                f"There is no response with the id {error.missing[:80]!r}: it was not stored, was "
                "deleted, or is too old.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None

    async def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation; raise `ApiError` 404 if there is none."""
        try:
            return await self.stored(self._store.conversation_items, conversation_id, reach)
        except NotStored:
            raise ApiError(
                404,
                f"There is no conversation with the id {conversation_id[:80]!r}.",
                param="conversation",
                code="conversation_not_found",
            ) from None

    async def stored(self, work: Callable[..., T], *values: object) -> T:
        """Return the result of the store's method `work`; raise `ApiError` 503 if it fails."""
        try:
            return await asyncio.to_thread(work, *values)
        except UNUSABLE as error:
            LOG.warning("stored responses cannot be used: %s", error)
            raise ApiError(503, "Stored responses cannot be read now.", code="store") from None
