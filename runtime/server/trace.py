"""`/v1/trace`: recordings, their entries, live entries, and exports.

Threads read the file a slice at a time. The JSON in the file is sent unchanged.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from aiohttp import web

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Recording, encoded
from caesura.runtime.recording.files.export import pieces
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import reading
from caesura.runtime.recording.storage.reading import Page
from caesura.runtime.recording.subscription import Subscription
from caesura.runtime.server.errors import ApiError, invalid
from caesura.runtime.server.state import STATE
from caesura.runtime.server.stream import EventStream
from caesura.tools.artifacts import ArtifactStore

T = TypeVar("T")

log = logging.getLogger(__name__)

RECORDER = web.AppKey("caesura_recorder", Recorder)
_ARTIFACTS = web.AppKey("caesura_trace_artifacts", ArtifactStore)
_WATCHING = web.AppKey("caesura_trace_watching", set[asyncio.Task[object]])

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
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_END = b"event: end\ndata: {}\n\n"
_SUFFIXES = {"html": ("text/html", "html"), "perfetto": ("application/json", "perfetto.json")}


def serve_traces(
    app: web.Application, recorder: Recorder | None, artifacts: ArtifactStore | None
) -> None:
    """Add the routes that serve a recorder's file; the caller closes the recorder."""
    if recorder is not None:
        app[RECORDER] = recorder
        app.on_shutdown.append(_dismiss)
    if artifacts is not None:
        app[_ARTIFACTS] = artifacts
    app[_WATCHING] = set()
    app.router.add_get("/v1/trace", _recordings)
    # These routes refuse HEAD: they write in pieces, which would be sent in spite of HEAD.
    app.router.add_get("/v1/trace/{id}", _entries, allow_head=False)
    app.router.add_get("/v1/trace/{id}/events", _events, allow_head=False)
    app.router.add_get("/v1/trace/{id}/export", _export, allow_head=False)
    app.router.add_get("/v1/trace/{id}/perfetto", _perfetto, allow_head=False)


async def _dismiss(app: web.Application) -> None:
    """End the streams of watchers, which would otherwise delay the server's shutdown."""
    app[RECORDER].dismiss()
    if watching := app[_WATCHING].copy():
        _, left = await asyncio.wait(watching, timeout=LEAVE_SECONDS)
        for task in left:  # their clients do not read, or they poll another process's recording
            task.cancel()


async def _recordings(request: web.Request) -> web.Response:
    recorder = _recorder(request)
    known = await _read(reading.recordings, request) if recorder.store.path.is_file() else []
    text = encoded({"recordings": [each.public() for each in known]})
    return web.Response(text=text, content_type="application/json", headers=_HEADERS)


async def _entries(request: web.Request) -> web.StreamResponse:
    recording = await _recording(request)
    path, number = _recorder(request).store.path, int(recording.id)
    after = _count(request, "after", 0)
    left = _count(request, "limit", DEFAULT_ENTRIES, 1, MAX_ENTRIES)
    response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "application/json"})
    first = await _read(reading.page, request, number, after, min(left, SLICE))
    await response.prepare(request)

    async def send() -> None:
        nonlocal after, left
        page, between = first, b""
        await response.write(b'{"entries":[')
        while page:
            await response.write(between + _with_ids(page))
            after, left, between = page[-1][0], left - len(page), b","
            if left <= 0:
                break
            page = await asyncio.to_thread(reading.page, path, number, after, min(left, SLICE))
        following = after if left <= 0 else None
        await response.write(f'],"next":{json.dumps(following)}}}'.encode())

    return await _finished(request, response, send())


async def _finished(
    request: web.Request, response: web.StreamResponse, sending: Awaitable[None]
) -> web.StreamResponse:
    """Send the rest of an answer; close the connection if that fails.

    After the headers there is no other way to report an error.
    """
    try:
        await sending
        await response.write_eof()
    except ConnectionError:
        raise
    except Exception as error:
        foreseen = isinstance(error, UsageError | ApiError)
        log.error("an answer was cut short: %s", error, exc_info=None if foreseen else error)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _events(request: web.Request) -> web.StreamResponse:
    """Send the stored entries, then new ones until the recording ends."""
    recorder, number = _recorder(request), int((await _recording(request)).id)
    after = _count(request, "after", _last_event(request))
    task, watching = asyncio.current_task(), request.app[_WATCHING]
    assert task is not None
    watching.add(task)
    try:
        async with EventStream(request, request.app[STATE].keep_alive_seconds) as stream:
            stream.response.headers.update(_HEADERS)
            await stream.begin()
            watch = _watch(stream, request, recorder, number, after)
            return await _finished(request, stream.response, watch)
    finally:
        watching.discard(task)


async def _watch(
    stream: EventStream, request: web.Request, recorder: Recorder, number: int, after: int
) -> None:
    if number == recorder.recording:
        with Subscription(recorder) as watcher:
            await _follow(stream, recorder, watcher, number, after)
    else:
        await _poll(stream, request, number, after)
    await stream.send_event(_END)
    await stream.hush()


async def _follow(
    stream: EventStream, recorder: Recorder, watcher: Subscription, number: int, after: int
) -> None:
    while not watcher.is_closed:
        after = await _catch_up(stream, recorder, number, after)
        while (batch := await watcher.next()) is not None:
            after = await _send(stream, [each for each in batch if each[0] > after], after)
    await _catch_up(stream, recorder, number, after)  # the watcher may have been behind at the end


async def _poll(stream: EventStream, request: web.Request, number: int, after: int) -> None:
    while True:
        found = await _read(reading.recording, request, number)
        after = await _catch_up(stream, _recorder(request), number, after)
        if found is None or not found.live:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _catch_up(stream: EventStream, recorder: Recorder, number: int, after: int) -> int:
    """Send the stored entries after the id `after`; return the last id."""
    path = recorder.store.path
    while page := await asyncio.to_thread(reading.page, path, number, after, SLICE):
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


async def _export(request: web.Request) -> web.StreamResponse:
    return await _download(request, "html")


async def _perfetto(request: web.Request) -> web.StreamResponse:
    return await _download(request, "perfetto")


async def _download(request: web.Request, form: str) -> web.StreamResponse:
    recording = await _recording(request)
    path, number = _recorder(request).store.path, int(recording.id)
    bodies = (body for _, body in reading.bodies(path, number))
    try:
        texts, _ = pieces(form, [(recording, bodies)], request.app.get(_ARTIFACTS))
        piece = await asyncio.to_thread(_some, texts)
    except UsageError as error:
        raise ApiError(404, _sentence(error), code="not_available") from None
    media_type, suffix = _SUFFIXES[form]
    response = web.StreamResponse(
        headers={
            **_HEADERS,
            "Content-Type": f"{media_type}; charset=utf-8",
            "Content-Disposition": f'attachment; filename="caesura-{number}.{suffix}"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }
    )
    await response.prepare(request)

    async def send() -> None:
        sent = piece
        while sent:
            await response.write(sent)
            sent = await asyncio.to_thread(_some, texts)

    return await _finished(request, response, send())


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


def _recorder(request: web.Request) -> Recorder:
    recorder = request.app.get(RECORDER)
    if recorder is None:
        message = "This server records no traces: start it without --no-trace."
        raise ApiError(404, message, code="not_recorded")
    return recorder


async def _recording(request: web.Request) -> Recording:
    """Return the recording that the path names; `live` means this server's own."""
    recorder, said = _recorder(request), request.match_info["id"]
    number = recorder.recording if said == "live" else _number(said)
    found = None if number is None else await _read(reading.recording, request, number)
    if found is None:
        message = f"There is no recording {said[:40]!r}; /v1/trace lists the recordings."
        raise ApiError(404, message, code="recording_not_found")
    return found


async def _read(work: Callable[..., T], request: web.Request, *values: int) -> T:
    """Read the file in a thread; raise `ApiError` 503 if that fails."""
    try:
        return await asyncio.to_thread(work, _recorder(request).store.path, *values)
    except UsageError as error:
        raise ApiError(503, _sentence(error), code="not_available") from None


def _last_event(request: web.Request) -> int:
    return _number(request.headers.get("Last-Event-ID", "")) or 0


def _number(said: str) -> int | None:
    """Return the text as a number, or None if it cannot be an id."""
    return int(said) if said.isdecimal() and len(said) <= len(str(MAX_ID)) else None


def _count(
    request: web.Request, name: str, default: int, least: int = 0, most: int = MAX_ID
) -> int:
    said = request.query.get(name)
    if said is None:
        return default
    number = _number(said)
    if number is None or not least <= number <= most:
        wanted = f"a whole number from {least} to {most}"
        raise invalid(f"{name} must be {wanted}, got {said[:40]!r}.", name)
    return number


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
