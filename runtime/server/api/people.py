"""`/v1/pending`: the items that wait for a person, and their answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from caesura.runtime.server.http.connection import JsonOnly
from caesura.runtime.server.http.errors import (
    ApiError,
    JsonAnswer,
    from_validation,
    invalid,
    sentence,
)
from caesura.runtime.server.http.stream import EventStream, Streamed
from caesura.runtime.server.keys.access import Door, reaches
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.keys.sender import sender_of
from caesura.tools.people import BadAnswer, NoSuchItem, NotPending, Pending, People
from caesura.tools.people.pending import (
    MAX_WHO_CHARACTERS,
    STATES,
    UNSETTLED,
    State,
    no_such_item,
)
from caesura.tools.tool import Tool


class Said(BaseModel):
    """The body of `POST /v1/pending/{id}`: an answer, or a decision about a call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    answer: str | None = None
    approve: bool | None = Field(default=None, strict=True)
    reason: str = ""
    who: str = Field(default="", max_length=MAX_WHO_CHARACTERS)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.answer is None) == (self.approve is None):
            given = "neither" if self.answer is None else "both"
            raise ValueError(
                f"send either answer, for a question, or approve, for a call; got {given}"
            )
        return self


def people_routes(
    people: People,
    door: Door,
    keep_alive_seconds: float,
    recording: Callable[[], int | None] = lambda: None,
) -> list[Route]:
    """Return the routes of `people`.

    `door` says which items a key sees and settles. `recording` tells the number of the recording in
    which the runs that ask are, if there is one.
    """
    handlers = _Handlers(people, door, keep_alive_seconds, recording)
    return [
        Route("/v1/pending", handlers.listed),
        Route("/v1/pending/events", Streamed(handlers.events), methods=["GET"]),
        Route("/v1/pending/{id}", handlers.item, methods=["GET"]),
        Route(
            "/v1/pending/{id}", handlers.said, methods=["POST"], middleware=[Middleware(JsonOnly)]
        ),
    ]


@asynccontextmanager
async def pending_told(
    people: People | None,
    session_id: str,
    tools: Iterable[Tool],
    tell: Callable[[Pending], Awaitable[object]],
) -> AsyncIterator[None]:
    """Call `tell` with each item that the session opens while the context lasts."""
    if people is None or not any(tool.waits_for_person or tool.approval for tool in tools):
        yield
        return
    async with people.watch() as items:

        async def watch() -> None:
            with suppress(ConnectionError):  # the client left; the stream notices it too
                async for item in items:
                    if item.session == session_id and item.state == "open":
                        await tell(item)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _Handlers:
    def __init__(
        self,
        people: People,
        door: Door,
        keep_alive_seconds: float,
        recording: Callable[[], int | None],
    ) -> None:
        self._people = people
        self._door = door
        self._recording = recording
        self._keep_alive_seconds = keep_alive_seconds

    async def events(self, request: Request, send: Send) -> None:
        """Send the items that can be answered now, then every item as it opens or changes."""
        async with (
            self._people.watch() as items,
            EventStream(send, self._keep_alive_seconds) as stream,
        ):
            await stream.begin()
            async for item in items:
                if self._sees(request, item):
                    await stream.send(self._told(item))
            await stream.end()

    async def listed(self, request: Request) -> Response:
        items = await self._people.listed(_states(request.query_params.get("state")))
        body: dict[str, Any] = {
            "object": "list",
            "data": [self._told(item) for item in items if self._sees(request, item)],
            "recording": self._recording(),
        }
        if self._people.trouble is not None:
            body["warning"] = f"Items are kept in memory only: {self._people.trouble}."
        return JsonAnswer(body)

    async def item(self, request: Request) -> Response:
        return JsonAnswer(self._told(await self._found(request)))

    async def said(self, request: Request) -> Response:
        """Accept the first answer to an item; refuse every later one with 409."""
        item_id = request.path_params["id"]
        try:
            said = Said.model_validate_json(await request.body())
        except ValidationError as error:
            raise from_validation(error) from None
        item, sender = await self._found(request), sender_of(request)
        if not reaches(self._door.reach(sender, Role.APPROVE), item.tenant):
            what = f"Settling {item_id[:64]!r}, which a client of another key waits for,"
            self._door.check_role(sender, Role.APPROVE, what)
        who = self._door.signature(sender, said.who)
        try:
            if said.answer is not None:
                item = await self._people.answer(item_id, said.answer, who)
            else:
                approve = bool(said.approve)
                item = await self._people.decide(item_id, approve, said.reason, who)
        except BadAnswer as error:
            raise invalid(sentence(error)) from None
        except NoSuchItem as error:
            raise ApiError(404, sentence(error), code="not_found") from None
        except NotPending as error:
            raise ApiError(409, sentence(error), code="not_pending") from None
        return JsonAnswer(self._told(item))

    async def _found(self, request: Request) -> Pending:
        """Return the item that the path names; raise `ApiError` 404 if the key sees none."""
        item_id = request.path_params["id"]
        try:
            item = await self._people.get(item_id)
            if not self._sees(request, item):
                raise no_such_item(item_id)
        except NoSuchItem as error:
            raise ApiError(404, sentence(error), code="not_found") from None
        return item

    def _sees(self, request: Request, item: Pending) -> bool:
        return reaches(self._door.reach(sender_of(request), Role.VIEW), item.tenant)

    def _told(self, item: Pending) -> dict[str, Any]:
        """Return the item, with the name of the key whose client asks."""
        asks = self._door.names.get(item.tenant)
        return item.public() if asks is None else item.public() | {"key": asks}


def _states(asked: str | None) -> tuple[State, ...]:
    if asked is None:
        return UNSETTLED
    if asked == "all":
        return STATES
    found = tuple(state for state in STATES if state == asked)
    if not found:
        choices = f"all, {', '.join(STATES)}"
        raise invalid(f"Unknown state {asked[:40]!r}; choose from: {choices}.", "state")
    return found
