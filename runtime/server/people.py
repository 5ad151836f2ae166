"""`/v1/pending`: the items that wait for a person, and their answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caesura.runtime.server.errors import ApiError, invalid
from caesura.runtime.server.state import STATE
from caesura.runtime.server.stream import EventStream
from caesura.tools.people import BadAnswer, NoSuchItem, NotPending, Pending, People
from caesura.tools.people.pending import MAX_WHO_CHARACTERS, STATES, UNSETTLED, State
from caesura.tools.tool import Tool

PEOPLE = web.AppKey("caesura_people", People)


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


def serve_people(app: web.Application, people: People) -> None:
    """Add the routes of `people` to an application; the caller closes `people`."""
    app[PEOPLE] = people
    app.router.add_get("/v1/pending", _pending)
    app.router.add_get("/v1/pending/events", _events)
    app.router.add_get("/v1/pending/{id}", _item)
    app.router.add_post("/v1/pending/{id}", _said)
    app.on_startup.append(_start)
    app.on_shutdown.append(_leave)


@asynccontextmanager
async def pending_told(
    people: People | None,
    session: str,
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
                    if item.session == session and item.state == "open":
                        await tell(item)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _start(app: web.Application) -> None:
    await app[PEOPLE].start()


async def _leave(app: web.Application) -> None:
    """Keep the questions of requests that the shutdown cancels, for the next process."""
    await app[PEOPLE].leave()


async def _pending(request: web.Request) -> web.Response:
    people = request.app[PEOPLE]
    items = await people.listed(_states(request.query.get("state")))
    body: dict[str, Any] = {"object": "list", "data": [item.public() for item in items]}
    if people.trouble is not None:
        body["warning"] = f"Items are kept in memory only: {people.trouble}."
    return web.json_response(body)


async def _item(request: web.Request) -> web.Response:
    try:
        item = await request.app[PEOPLE].get(request.match_info["id"])
    except NoSuchItem as error:
        raise ApiError(404, _sentence(error), code="not_found") from None
    return web.json_response(item.public())


async def _said(request: web.Request) -> web.Response:
    """Accept the first answer to an item; refuse every later one with 409."""
    people, item_id = request.app[PEOPLE], request.match_info["id"]
    try:
        said = Said.model_validate_json(await request.read())
    except ValidationError as error:
        raise _in_words(error) from None
    try:
        if said.answer is not None:
            item = await people.answer(item_id, said.answer, said.who)
        else:
            item = await people.decide(item_id, bool(said.approve), said.reason, said.who)
    except BadAnswer as error:
        raise invalid(_sentence(error)) from None
    except NoSuchItem as error:
        raise ApiError(404, _sentence(error), code="not_found") from None
    except NotPending as error:
        raise ApiError(409, _sentence(error), code="not_pending") from None
    return web.json_response(item.public())


async def _events(request: web.Request) -> web.StreamResponse:
    """Send the items that can be answered now, then every item as it opens or changes."""
    keep_alive_seconds = request.app[STATE].keep_alive_seconds
    async with (
        request.app[PEOPLE].watch() as items,
        EventStream(request, keep_alive_seconds) as stream,
    ):
        await stream.begin()
        async for item in items:
            await stream.send(item.public())
    await stream.response.write_eof()
    return stream.response


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


def _in_words(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(step) for step in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    sentence = f"{reason[:1].lower()}{reason[1:]}"
    return invalid(f"{field}: {sentence}." if field else f"The body: {sentence}.", field or None)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
