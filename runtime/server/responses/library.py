"""What is stored, as requests name it: items, earlier responses and conversations."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.keys.key import Reach, unsealed
from caesura.runtime.server.responses.items import REFERENCE
from caesura.runtime.server.responses.messages import messages_of
from caesura.runtime.server.responses.plan import History
from caesura.runtime.server.responses.resource import FINAL
from caesura.runtime.server.responses.schema import Continued
from caesura.runtime.server.responses.store import (
    UNUSABLE,
    Item,
    NotStored,
    ResponseStore,
    Stored,
    history_of,
)
from caesura.stores.leases import RENEW_SECONDS

T = TypeVar("T")
LOG = logging.getLogger(__name__)


class Library:
    """The store of one application. What is not within `reach` is not there."""

    def __init__(self, store: ResponseStore) -> None:
        self.store = store
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Let other servers over the same store know that this one lives."""
        self._beating = asyncio.create_task(self._beat(), name="responses")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(*UNUSABLE):  # the next use of the store says so
                await asyncio.to_thread(self.store.renew)

    def leave(self) -> None:
        """Tell other servers no more that this one lives."""
        if self._beating is not None:
            self._beating.cancel()

    async def aclose(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self.store.close)

    async def read(self, work: Callable[..., T], *values: object) -> T:
        """Return the result of the store's method `work`; raise `ApiError` 503 if it fails."""
        try:
            return await asyncio.to_thread(work, *values)
        except UNUSABLE as error:
            LOG.warning("stored responses cannot be used: %s", error)
            raise ApiError(503, "Stored responses cannot be read now.", code="store") from None

    async def put(self, stored: Stored) -> None:
        """Keep a response, whose client gets it even if it cannot be stored."""
        try:
            await asyncio.to_thread(self.store.put, stored)
        except UNUSABLE as error:
            LOG.warning("the response %s is not stored: %s", stored.id, error)

    async def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response; raise `ApiError` 404 if there is none."""
        try:
            return await self.read(self.store.get, response_id, reach)
        except NotStored:
            raise _no_response(response_id) from None

    async def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response; raise `ApiError` 404 if there is none."""
        try:
            await self.read(self.store.delete, response_id, reach)
        except NotStored:
            raise _no_response(response_id) from None

    async def resolved(self, items: Sequence[Item], reach: Reach, tenant: str) -> list[Item]:
        """Return the items, with references replaced by the items that they name.

        What the model thought is decrypted if it was encrypted for the tenant.
        """
        return [
            await self._referenced(item["id"], reach)
            if item["type"] == REFERENCE
            else _opened(item, tenant)
            for item in items
        ]

    async def _referenced(self, item_id: str, reach: Reach) -> Item:
        try:
            return await self.read(self.store.item, item_id, reach)
        except NotStored:
            message = f"input: there is no item with the id {item_id[:80]!r}."
            raise ApiError(404, message, param="input", code="item_not_found") from None

    async def history(
        self, request: Continued, recent: Mapping[str, Stored], reach: Reach
    ) -> History:
        """Return what came before a request; raise `ApiError` 404 if it is not stored.

        `recent` are responses that only this client can continue, by id.
        """
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
        last = max((n for n, each in enumerate(chain) if _is_compaction(each)), default=None)
        if last is None:
            return History(history_of(chain), items)
        # A compaction stands for all that came before it.
        return History([*messages_of(chain[last].output), *history_of(chain[last + 1 :])], items)

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
            return [*await self.read(self.store.chain, following, reach), *newest[::-1]]
        except NotStored as error:
            # OpenAI's status and words, by which clients know that they have to send all again.
            raise ApiError(
                400,
                f"Previous response with id {error.missing[:80]!r} not found: it was not stored, "
                "was deleted, or is too old.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None

    async def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation; raise `ApiError` 404 if there is none."""
        try:
            return await self.read(self.store.conversation_items, conversation_id, reach)
        except NotStored:
            raise ApiError(
                404,
                f"There is no conversation with the id {conversation_id[:80]!r}.",
                param="conversation",
                code="conversation_not_found",
            ) from None


def _is_compaction(stored: Stored) -> bool:
    return any(item["type"] == "compaction" for item in stored.output)


def _opened(item: Item, tenant: str) -> Item:
    """Return the item; reasoning that came encrypted alone has its text."""
    token = item.get("encrypted_content")
    if item["type"] != "reasoning" or item.get("content") or not isinstance(token, str):
        return item
    text = unsealed(tenant, token)
    if text is None:
        return item
    return item | {"content": [{"type": "reasoning_text", "text": text}]}


def _no_response(response_id: str) -> ApiError:
    return ApiError(
        404,
        f"There is no response with the id {response_id[:80]!r}.",
        param="response_id",
        code="response_not_found",
    )
