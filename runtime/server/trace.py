"""`/v1/trace`: recordings, their entries, live entries, exports, and changes to recordings.

Threads read the file a slice at a time. The JSON in the file is sent unchanged.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from caesura.distribution import __version__
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.catalog import Page
from caesura.runtime.recording.entries import Recording, encoded
from caesura.runtime.recording.files import pieces
from caesura.runtime.recording.recorder import Recorder, Subscription
from caesura.runtime.server.http.connection import JSON, JsonOnly
from caesura.runtime.server.http.errors import ApiError, from_validation, invalid, sentence
from caesura.runtime.server.http.packing import (
    File,
    Packer,
    has,
    not_modified,
    tag_of,
    takes_gzip,
)
from caesura.runtime.server.http.stream import EventStream, Pieces, Streamed
from caesura.tools.artifacts import ArtifactStore

T = TypeVar("T")

DEFAULT_ENTRIES, MAX_ENTRIES = 5000, 50_000
"""The default and the largest number of entries in an answer."""
SLICE = 500
"""The number of entries of one read."""
PIECE_CHARACTERS = 2**18
"""The approximate size of one write."""
POLL_SECONDS = 0.5
"""The interval between two reads of a recording that another process writes."""
LEAVE_SECONDS = 1.0
"""The time that watchers have to read the last entries when the server ends."""
MAX_ID = 10**18 - 1
"""The largest number in a path or query; ids in SQLite have one more digit."""
TRACE = "Caesura-Trace"
"""The header of an answer with the address of its request on the page."""
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_MAY_BE_KEPT = {**_HEADERS, "Cache-Control": "private, no-cache"}
"""For what has no texts of users: a browser may keep it, and asks whether it is still the same."""
_RUNS = ("chatcmpl-", "cmpl-", "msg_", "resp_")
"""How the ids of answers begin that runs have."""
_END = b"event: end\ndata: {}\n\n"
_SUFFIXES = {"html": ("text/html", "html"), "perfetto": ("application/json", "perfetto.json")}


class Change(BaseModel):
    """The body of `PATCH /v1/trace/{id}`: what is to be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str | None = None
    note: str | None = None
    pinned: bool | None = Field(default=None, strict=True)

    @model_validator(mode="after")
    def _any(self) -> Self:
        if self.title is None and self.note is None and self.pinned is None:
            raise ValueError("send at least one of title, note and pinned")
        return self


class Traces:
    """The routes that serve a recorder's file; the caller closes the recorder."""

    def __init__(
        self,
        recorder: Recorder | None,
        artifacts: ArtifactStore | None,
        keep_alive_seconds: float,
        public_url: str = "",
    ) -> None:
        self._known = recorder
        self._artifacts = artifacts
        self._keep_alive_seconds = keep_alive_seconds
        self._public_url = public_url.rstrip("/")
        self._watching: set[asyncio.Task[object]] = set()

    def routes(self) -> list[Route]:
        """Return the routes."""
        # All but the first refuse HEAD: they write in pieces, which would be read for nothing.
        return [
            Route("/v1/trace", self._recordings),
            _get("/v1/trace/{id}", self._entries),
            Route(
                "/v1/trace/{id}",
                self._change,
                methods=["PATCH"],
                middleware=[Middleware(JsonOnly)],
            ),
            Route("/v1/trace/{id}", self._delete, methods=["DELETE"]),
            _get("/v1/trace/{id}/events", self._events),
            _get("/v1/trace/{id}/export", self._export),
            _get("/v1/trace/{id}/perfetto", self._perfetto),
        ]

    async def dismiss(self) -> None:
        """End the streams of watchers, which would otherwise delay the server's shutdown."""
        if self._known is not None:
            self._known.dismiss()
        if watching := self._watching.copy():
            _, left = await asyncio.wait(watching, timeout=LEAVE_SECONDS)
            for task in left:  # their clients do not read, or they poll another's recording
                task.cancel()

    @property
    def recording(self) -> int | None:
        """The number of the recording that this server makes, or None before its first entry."""
        return None if self._known is None else self._known.recording

    def headers(self, answer: str) -> Mapping[str, str]:
        """Return the headers that lead from an answer to its request, as far as it is recorded."""
        address = self.address(answer)
        return {TRACE: address} if address else {}

    def address(self, answer: str) -> str:
        """Return the address on the page of an answer's request; empty if it is not recorded."""
        if self._known is None or self._known.recording is None or not answer.startswith(_RUNS):
            return ""
        named = f"{self._known.recording}-{_base36(int(self._known.started))}"
        return f"{self._public_url}/ui/#/session/{quote(answer)}?rec={named}"

    @property
    def _recorder(self) -> Recorder:
        if self._known is None:
            message = "This server records no traces: start it without --no-trace."
            raise ApiError(404, message, code="not_recorded")
        return self._known

    async def _read(self, work: Callable[..., T], *values: int) -> T:
        """Read the file in a thread; raise `ApiError` 503 if that fails."""
        try:
            return await asyncio.to_thread(work, self._recorder.store.path, *values)
        except UsageError as error:
            raise ApiError(503, sentence(error), code="not_available") from None

    async def _recording(self, request: Request) -> Recording:
        """Return the recording that the path names; `live` means this server's own."""
        recorder, said = self._recorder, request.path_params["id"]
        number = recorder.recording if said == "live" else _number(said)
        found = None if number is None else await self._read(catalog.recording, number)
        if found is None:
            message = f"There is no recording {said[:40]!r}; /v1/trace lists the recordings."
            raise ApiError(404, message, code="recording_not_found")
        return found

    async def _recordings(self, request: Request) -> Response:
        there = self._recorder.store.path.is_file()
        known = await self._read(catalog.recordings) if there else []
        own = self._recorder.recording
        told = [{**each.public(), "own": each.id == own} for each in known]
        listed = File(encoded({"recordings": told}), "application/json", _MAY_BE_KEPT)
        return listed.answer(request)

    async def _change(self, request: Request) -> Response:
        """Change the title, the note or the pin of a recording; answer with the recording."""
        recording = await self._recording(request)
        try:
            wanted = Change.model_validate_json(await request.body())
        except ValidationError as error:
            raise from_validation(error) from None
        changed = await self._write(
            partial(catalog.change, **wanted.model_dump()), int(recording.id)
        )
        return Response(encoded(changed.public()), media_type=JSON, headers=_HEADERS)

    async def _delete(self, request: Request) -> Response:
        """Delete a recording that has ended."""
        recording = await self._recording(request)
        await self._write(catalog.delete, int(recording.id))
        text = encoded({"id": recording.id, "deleted": True})
        return Response(text, media_type=JSON, headers=_HEADERS)

    async def _write(self, work: Callable[[Path, int], T], number: int) -> T:
        """Change the file in a thread; raise `ApiError` if that fails."""
        try:
            return await asyncio.to_thread(work, self._recorder.store.path, number)
        except catalog.BeingRecorded as error:
            raise ApiError(409, sentence(error), code="being_recorded") from None
        except UsageError as error:
            raise invalid(sentence(error)) from None

    async def _entries(self, request: Request, send: Send) -> None:
        recording = await self._recording(request)
        path, number = self._recorder.store.path, int(recording.id)
        after = _count(request, "after", 0)
        left = _count(request, "limit", DEFAULT_ENTRIES, 1, MAX_ENTRIES)
        page = await self._read(catalog.page, number, after, min(left, SLICE))
        tag = tag_of(recording.public(), after, left)
        headers = {**_kept(recording), "ETag": tag, "Content-Type": "application/json"}
        if has(request, tag):
            await not_modified(tag, headers)(request.scope, request.receive, send)
            return
        answer = Pieces(send, headers, _packer(request))
        between = b""
        await answer.write(b'{"entries":[')
        while page:
            await answer.write(between + _with_ids(page))
            after, left, between = page[-1][0], left - len(page), b","
            if left <= 0:
                break
            page = await asyncio.to_thread(catalog.page, path, number, after, min(left, SLICE))
        following = after if left <= 0 else None
        await answer.write(f'],"next":{json.dumps(following)}}}'.encode())
        await answer.end()

    async def _events(self, request: Request, send: Send) -> None:
        """Send the stored entries, then new ones until the recording ends."""
        number = int((await self._recording(request)).id)
        after = _count(request, "after", _last_event(request))
        task = asyncio.current_task()
        assert task is not None
        self._watching.add(task)
        try:
            seconds, packer = self._keep_alive_seconds, _packer(request)
            async with EventStream(send, seconds, _HEADERS, packer=packer) as stream:
                await stream.begin()
                if number == self._recorder.recording:
                    with Subscription(self._recorder) as watcher:
                        await _follow(stream, self._recorder, watcher, number, after)
                else:
                    await self._poll(stream, number, after)
                await stream.send_event(_END)
                await stream.end()
        finally:
            self._watching.discard(task)

    async def _poll(self, stream: EventStream, number: int, after: int) -> None:
        while True:
            found = await self._read(catalog.recording, number)
            after = await _catch_up(stream, self._recorder, number, after)
            if found is None or not found.live:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _export(self, request: Request, send: Send) -> None:
        await self._download(request, send, "html")

    async def _perfetto(self, request: Request, send: Send) -> None:
        await self._download(request, send, "perfetto")

    async def _download(self, request: Request, send: Send, form: str) -> None:
        recording = await self._recording(request)
        tag = tag_of(recording.public(), form, __version__)
        if has(request, tag):
            await not_modified(tag, _kept(recording))(request.scope, request.receive, send)
            return
        path, number = self._recorder.store.path, int(recording.id)
        bodies = (body for _, body in catalog.bodies(path, number))
        try:
            stores = () if self._artifacts is None else (self._artifacts,)
            texts, _ = pieces(form, [(recording, bodies)], stores)
            piece = await asyncio.to_thread(_some, texts)
        except UsageError as error:
            raise ApiError(404, sentence(error), code="not_available") from None
        media_type, suffix = _SUFFIXES[form]
        headers = {
            **_kept(recording),
            "ETag": tag,
            "Content-Type": f"{media_type}; charset=utf-8",
            "Content-Disposition": f'attachment; filename="caesura-{number}.{suffix}"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }
        answer = Pieces(send, headers, _packer(request))
        while piece:
            await answer.write(piece)
            piece = await asyncio.to_thread(_some, texts)
        await answer.end()


def _packer(request: Request) -> Packer | None:
    return Packer() if takes_gzip(request) else None


def _kept(recording: Recording) -> Mapping[str, str]:
    """Return the headers of answers about a recording: texts of users are kept nowhere."""
    return _HEADERS if recording.content else _MAY_BE_KEPT


def _base36(number: int) -> str:
    """Return a number as the page writes the start of a recording."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def _get(path: str, handler: Callable[[Request, Send], Awaitable[None]]) -> Route:
    """Return a route that takes GET and refuses HEAD."""
    route = Route(path, Streamed(handler), methods=["GET"])
    route.methods = {"GET"}
    return route


async def _follow(
    stream: EventStream, recorder: Recorder, watcher: Subscription, number: int, after: int
) -> None:
    while not watcher.is_closed:
        after = await _catch_up(stream, recorder, number, after)
        while (batch := await watcher.next()) is not None:
            after = await _send(stream, [each for each in batch if each[0] > after], after)
    await _catch_up(stream, recorder, number, after)  # the watcher may have been behind at the end


async def _catch_up(stream: EventStream, recorder: Recorder, number: int, after: int) -> int:
    """Send the stored entries after the id `after`; return the last id."""
    path = recorder.store.path
    while page := await asyncio.to_thread(catalog.page, path, number, after, SLICE):
        after = await _send(stream, page, after)
    return after


async def _send(stream: EventStream, page: Page, after: int) -> int:
    """Send entries in events of bounded size; return the last id."""
    start, size = 0, 0
    for end, (number, body) in enumerate(page, 1):
        size += len(body)
        if size >= PIECE_CHARACTERS or end == len(page):
            data = _with_ids(page[start:end])
            await stream.send_event(b"id: %d\ndata: [%s]\n\n" % (number, data))
            start, size, after = end, 0, number
    return after


def _some(texts: Iterator[str]) -> bytes:
    """Return the next pieces of a text, or no bytes at its end."""
    taken, size = [], 0
    for text in texts:
        taken.append(text)
        size += len(text)
        if size >= PIECE_CHARACTERS:
            break
    return "".join(taken).encode()


def _with_ids(page: Page) -> bytes:
    """Return entries as items of a JSON list, each with its id."""
    # The last of two equal keys counts in JSON, and an entry may hold an id of its own.
    return ",".join(
        f'{body[:-1]}{"," if len(body) > 2 else ""}"id":{number}}}' for number, body in page
    ).encode()


def _last_event(request: Request) -> int:
    return _number(request.headers.get("Last-Event-ID", "")) or 0


def _number(said: str) -> int | None:
    """Return the text as a number, or None if it cannot be an id."""
    return int(said) if said.isdecimal() and len(said) <= len(str(MAX_ID)) else None


def _count(request: Request, name: str, default: int, least: int = 0, most: int = MAX_ID) -> int:
    said = request.query_params.get(name)
    if said is None:
        return default
    number = _number(said)
    if number is None or not least <= number <= most:
        wanted = f"a whole number from {least} to {most}"
        raise invalid(f"{name} must be {wanted}, got {said[:40]!r}.", name)
    return number
