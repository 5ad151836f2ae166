"""The routes of `/v1/conversations`."""

import time
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from caesura.runtime.server.http.connection import JsonOnly
from caesura.runtime.server.http.errors import ApiError, JsonAnswer, invalid
from caesura.runtime.server.http.exchange import note_answer
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.routes import page
from caesura.runtime.server.responses.schema import Metadata, parsed_as
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import Conversation, Item, NotStored

MAX_NEW_ITEMS = 20
"""The most items that one request adds, as at OpenAI."""


class NewConversation(BaseModel):
    """The body of `POST /v1/conversations`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: Any = None
    metadata: Metadata | None = None


class NewItems(BaseModel):
    """The body of `POST /v1/conversations/{id}/items`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: list[Any]


class NewMetadata(BaseModel):
    """The body of `POST /v1/conversations/{id}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metadata: Metadata | None


def conversation_routes(responses: Responses) -> list[BaseRoute]:
    """Return the routes of conversations."""
    handlers = _Handlers(responses)
    post: dict[str, Any] = {"methods": ["POST"], "middleware": [Middleware(JsonOnly)]}
    one = "/v1/conversations/{id}"
    item = f"{one}/items/{{item_id}}"
    return [
        Route("/v1/conversations", handlers.create, **post),
        Route(one, handlers.get, methods=["GET"]),
        Route(one, handlers.update, **post),
        Route(one, handlers.delete, methods=["DELETE"]),
        Route(f"{one}/items", handlers.items, methods=["GET"]),
        Route(f"{one}/items", handlers.add_items, **post),
        Route(item, handlers.item, methods=["GET"]),
        Route(item, handlers.delete_item, methods=["DELETE"]),
    ]


class _Handlers:
    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._library = responses.library
        self._store = responses.library.store

    async def create(self, request: Request) -> Response:
        asked = parsed_as(NewConversation, await request.body() or b"{}")
        items = await self._new_items(request, asked.items)
        made = Conversation(
            ids.new_id(ids.CONVERSATION),
            int(time.time()),
            asked.metadata or {},
            sender_of(request).tenant,
        )
        await self._library.read(self._store.put_conversation, made, items)
        note_answer(request.scope, made.id)
        return JsonAnswer(made.public())

    async def get(self, request: Request) -> Response:
        return JsonAnswer((await self._conversation(request)).public())

    async def update(self, request: Request) -> Response:
        asked = parsed_as(NewMetadata, await request.body())
        known = await self._conversation(request)
        changed = replace(known, metadata=asked.metadata or {})
        await self._library.read(self._store.put_conversation, changed)
        return JsonAnswer(changed.public())

    async def delete(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        reach = self._responses.reach(sender_of(request))
        await self._library.read(self._store.delete_conversation, conversation.id, reach)
        told = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
        return JsonAnswer(told)

    async def items(self, request: Request) -> Response:
        found = await self._items(request)
        return JsonAnswer(page(found, request.query_params))

    async def add_items(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        asked = parsed_as(NewItems, await request.body())
        items = await self._new_items(request, asked.items)
        reach = self._responses.reach(sender_of(request))
        await self._library.read(self._store.add_items, conversation.id, items, reach)
        return JsonAnswer(page(items, {"order": "asc"}))

    async def item(self, request: Request) -> Response:
        item_id = request.path_params["item_id"]
        for item in await self._items(request):
            if item["id"] == item_id:
                return JsonAnswer(item)
        raise _no_item(item_id)

    async def delete_item(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        item_id = request.path_params["item_id"]
        delete, reach = self._store.delete_item, self._responses.reach(sender_of(request))
        try:
            await self._library.read(delete, conversation.id, item_id, reach)
        except NotStored:
            raise _no_item(item_id) from None
        return JsonAnswer(conversation.public())

    async def _items(self, request: Request) -> list[Item]:
        reach = self._responses.reach(sender_of(request))
        return await self._library.conversation_items(request.path_params["id"], reach)

    async def _conversation(self, request: Request) -> Conversation:
        conversation_id = request.path_params["id"]
        reach = self._responses.reach(sender_of(request))
        try:
            return await self._library.read(self._store.conversation, conversation_id, reach)
        except NotStored:
            raise ApiError(
                404,
                f"There is no conversation with the id {conversation_id[:80]!r}.",
                param="conversation_id",
                code="conversation_not_found",
            ) from None

    async def _new_items(self, request: Request, given: Any) -> list[Item]:
        sender = sender_of(request)
        reach = self._responses.reach(sender)
        items = await self._library.resolved(items_of(given, "items"), reach, sender.tenant)
        if len(items) > MAX_NEW_ITEMS:
            message = f"items has {len(items)} items; at most {MAX_NEW_ITEMS} are allowed."
            raise invalid(message, "items")
        return items


def _no_item(item_id: str) -> ApiError:
    message = f"There is no item with the id {item_id[:80]!r}."
    return ApiError(404, message, param="item_id", code="item_not_found")
