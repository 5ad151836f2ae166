"""The routes of `/v1/responses`, and lists of items in pages."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Send

from caesura.runtime.server.api.fields import in_words
from caesura.runtime.server.http.connection import JsonOnly, parsed
from caesura.runtime.server.http.errors import JsonAnswer, invalid
from caesura.runtime.server.http.exchange import count_as, note_answer
from caesura.runtime.server.http.stream import EventStream, Streamed
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses.compact import compacted, counted_tokens
from caesura.runtime.server.responses.output import events_again
from caesura.runtime.server.responses.resource import FINAL
from caesura.runtime.server.responses.response import Feed
from caesura.runtime.server.responses.schema import parse, parse_compact, parse_count
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.steering import ENDED, SteerRequest, refused
from caesura.runtime.server.responses.store import Item

MAX_NUMBER_DIGITS = 9


def response_routes(responses: Responses, state: State) -> list[BaseRoute]:
    """Return the routes of responses."""
    handlers = ResponseHandlers(responses, state)
    json_only = [Middleware(JsonOnly)]
    root, one = "/v1/responses", "/v1/responses/{id}"
    post: dict[str, Any] = {"methods": ["POST"], "middleware": json_only}
    return [
        Route(root, Streamed(handlers.create), **post),
        Route(f"{root}/input_tokens", handlers.input_tokens, **post),
        Route(f"{root}/compact", handlers.compact, **post),
        Route(one, Streamed(handlers.get), methods=["GET"]),
        Route(one, handlers.delete, methods=["DELETE"]),
        Route(f"{one}/cancel", handlers.cancel, **post),
        Route(f"{one}/steer", handlers.steer, **post),
        Route(f"{one}/input_items", handlers.input_items, methods=["GET"]),
    ]


class ResponseHandlers:
    """The handlers of the routes."""

    def __init__(self, responses: Responses, state: State) -> None:
        self._responses = responses
        self._state = state

    async def create(self, request: Request, send: Send) -> None:
        """Create a response: whole, streamed, or in the background.

        A response that is not in the background is cancelled when its client leaves.
        """
        asked, items = await parsed(parse, await request.body())
        create = self._responses.create if asked.generates else self._responses.prepare
        part, run = await create(asked, items, sender_of(request))
        note_answer(request.scope, part.id)
        try:
            if asked.stream:
                await self._stream(request, send, part.feed)
                return
            if asked.background and run is not None:
                whole = part.answer.snapshot() | {"status": "queued"}
            else:
                await part.feed.ended()
                if part.feed.error is not None:
                    raise part.feed.error
                whole = part.answer.resource.public()
        finally:
            if run is not None and not asked.background and not part.feed.is_ended:
                await asyncio.shield(self._responses.left(part, run))
        await JsonAnswer(whole)(request.scope, request.receive, send)

    async def get(self, request: Request, send: Send) -> None:
        """Return a response, or stream its events.

        They are the events as they were while these are kept, and else made from a response that
        has ended. Raises `ApiError` 400 for a response under way whose events are not kept.
        """
        response_id = request.path_params["id"]
        reach = self._responses.reach(sender_of(request))
        if request.query_params.get("stream") != "true":
            found = await self._responses.get(response_id, reach)
            await JsonAnswer(found.public())(request.scope, request.receive, send)
            return
        after = _number(request.query_params.get("starting_after"))
        part = self._responses.runs.with_events(response_id, reach)
        if part is not None:
            await self._stream(request, send, part.feed, after)
            return
        found = await self._responses.get(response_id, reach)
        if found.resource["status"] not in FINAL:
            raise invalid(
                "The events of this response cannot be told while it runs: it was created without "
                "background, or another server runs it. Send this request again when it has ended.",
                "stream",
            )
        async with EventStream(send, self._state.options.keep_alive_seconds) as stream:
            for event in events_again(found.public(), after):
                await stream.send_typed(event)
            await stream.end()

    async def delete(self, request: Request) -> Response:
        """Delete a response."""
        response_id = request.path_params["id"]
        await self._responses.delete(response_id, self._responses.reach(sender_of(request)))
        return JsonAnswer({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """Cancel a response that runs in the background; one that has ended stays as it is."""
        response_id = request.path_params["id"]
        reach = self._responses.reach(sender_of(request))
        found = await self._responses.get(response_id, reach)
        if not found.resource["background"]:
            message = "Only a response that was created with background can be cancelled."
            raise invalid(message, "response_id")
        run = self._responses.runs.of(response_id, reach)
        if run is not None and found.resource["status"] not in FINAL:
            await run.cancel()
            found = await self._responses.get(response_id, reach)
        return JsonAnswer(found.public())

    async def steer(self, request: Request) -> Response:
        """Tell a response under way messages of the user; answer once the model was told.

        The answer names the response that goes on behind them, whose events can be streamed.
        """
        given = await parsed(_steering, await request.body())
        response_id = request.path_params["id"]
        steer = self._responses.steer(given, response_id, sender_of(request))
        successor = await steer.ended
        if successor is None:
            message = f"{response_id} ended before the model was told: send the input by itself."
            raise refused(ENDED, message)
        about = {"id": steer.id, "object": "response.steer", "previous_response_id": response_id}
        return JsonAnswer(about | {"response_id": successor})

    async def input_items(self, request: Request) -> Response:
        """List the items of a response's own input."""
        reach = self._responses.reach(sender_of(request))
        found = await self._responses.get(request.path_params["id"], reach)
        return JsonAnswer(page(found.input, request.query_params))

    async def input_tokens(self, request: Request) -> Response:
        """Count the tokens of the prompt that a request would have."""
        asked, items = await parsed(parse_count, await request.body())
        sender = sender_of(request)
        count = await counted_tokens(self._responses, self._state, asked, items, sender)
        return JsonAnswer({"object": "response.input_tokens", "input_tokens": count})

    async def compact(self, request: Request) -> Response:
        """Replace a conversation by its user's messages and a summary."""
        asked, items = await parsed(parse_compact, await request.body())
        sender = sender_of(request)
        return JsonAnswer(await compacted(self._responses, asked, items, sender))

    async def _stream(self, request: Request, send: Send, feed: Feed, after: int = -1) -> None:
        async with EventStream(send, self._state.options.keep_alive_seconds) as stream:
            async for event in feed.read(after):
                if feed.error is not None and feed.failed_first and not stream.begun:
                    raise feed.error  # nothing was sent, so the error can have a status
                await stream.send_typed(event)
            if feed.error is not None and not stream.begun:
                raise feed.error
            if feed.error is not None:
                count_as(request.scope, feed.error.status, feed.error.code)
            await stream.end()


def _steering(body: bytes) -> object:
    """Return the input in the body of a request to steer; raise `ApiError` for no such body."""
    try:
        return SteerRequest.model_validate_json(body).input
    except ValidationError as error:
        raise in_words(error) from None


def _number(said: str | None) -> int:
    if said is None:
        return -1
    if not said.isdecimal() or len(said) > MAX_NUMBER_DIGITS:
        message = f"starting_after must be the number of an event, got {said[:40]!r}."
        raise invalid(message, "starting_after")
    return int(said)


DEFAULT_LIMIT, MAX_LIMIT = 20, 100
ORDERS = ("asc", "desc")


def page(items: Sequence[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of items, which are given in the order of their making.

    `query` may have `order` (`desc` by default), `limit` and `after`, the id of the item before
    the page. Raises `ApiError` 400 for another value.
    """
    order = query.get("order", "desc")
    if order not in ORDERS:
        raise invalid(f"order must be one of {', '.join(ORDERS)}, got {order[:40]!r}.", "order")
    limit = _limit(query.get("limit"))
    found = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        places = [number for number, item in enumerate(found) if item["id"] == after]
        if not places:
            raise invalid(f"after names no item of this list, got {after[:80]!r}.", "after")
        found = found[places[0] + 1 :]
    data = found[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(found) > limit,
    }


def _limit(said: str | None) -> int:
    if said is None:
        return DEFAULT_LIMIT
    if not said.isdecimal() or len(said) > 3 or not 1 <= int(said) <= MAX_LIMIT:
        message = f"limit must be a whole number from 1 to {MAX_LIMIT}, got {said[:40]!r}."
        raise invalid(message, "limit")
    return int(said)
