"""Answers of the page and of `/v1/trace`: packed by gzip, and not sent again if known."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.requests import HTTPConnection

from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server.http.packing import Packer, has, takes_gzip
from tests.kit.server import Served
from tests.kit.waiting import until

GZIP = {"Accept-Encoding": "gzip"}
PLAIN = {"Accept-Encoding": "identity"}
FILES = ("/ui/", "/ui/ui.js", "/ui/ui.css")
ROUTES = ("", "/live", "/live/export", "/live/perfetto")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve") as made:
        yield made


@asynccontextmanager
async def raw(served: Served, path: str, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """An answer as its bytes come."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as http,
        http.get(f"{served.url}{path}", headers=headers) as response,
    ):
        yield response


def asking(**headers: str) -> HTTPConnection:
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    return HTTPConnection({"type": "http", "headers": pairs})


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("gzip", True),
        ("GZIP, br", True),
        ("br;q=1, gzip;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("gzip;q=many", False),
    ],
)
def test_what_clients_take(said: str, taken: bool) -> None:
    assert takes_gzip(asking(Accept_Encoding=said)) is taken
    assert not takes_gzip(asking())


def test_tags_are_compared_weakly() -> None:
    for said in ('W/"a"', '"a"', '"b", W/"a"', "*"):
        assert has(asking(If_None_Match=said), 'W/"a"'), said
    assert not has(asking(If_None_Match='"b"'), 'W/"a"')
    assert not has(asking(), 'W/"a"')


async def test_each_piece_can_be_read_at_once() -> None:
    packer, reader = Packer(), zlib.decompressobj(wbits=31)
    for piece in (b"event: one\n\n", b"x" * 100_000, b""):
        assert reader.decompress(await packer.packed(piece)) == piece
    assert reader.decompress(await packer.packed(b"", last=True)) == b""
    assert reader.eof


@pytest.mark.parametrize("path", FILES)
async def test_the_pages_files_are_packed_and_not_sent_again(serve_script: Any, path: str) -> None:
    served = await serve_script([])
    async with raw(served, path, **PLAIN) as response:
        plain, tag = await response.read(), response.headers["ETag"]
        assert "Content-Encoding" not in response.headers
    async with raw(served, path, **GZIP) as response:
        packed = await response.read()
        if len(plain) >= 1024:
            assert response.headers["Content-Encoding"] == "gzip"
            assert len(packed) < len(plain) / 2
            packed = gzip.decompress(packed)
        assert packed == plain
        assert response.headers["Vary"] == "Accept-Encoding"
    async with raw(served, path, **{"If-None-Match": tag}) as response:
        assert (response.status, await response.read()) == (304, b"")
        assert response.headers["ETag"] == tag
        assert "Content-Security-Policy" in response.headers


@pytest.mark.parametrize("path", ROUTES)
async def test_recordings_are_sent_again_when_they_have_changed(
    serve_script: Any, recorder: Recorder, path: str
) -> None:
    recorder.add([{"kind": "steps", "text": "word " * 1000}])
    await until(lambda: recorder.written >= 1)
    served = await serve_script([], recorder=recorder)
    url = f"/v1/trace{path}"
    async with raw(served, url, **PLAIN) as response:
        plain, tag = await response.read(), response.headers["ETag"]
        assert response.headers["Cache-Control"] == "private, no-cache"
    async with raw(served, url, **GZIP) as response:
        packed = await response.read()
        if response.headers.get("Content-Encoding") == "gzip":
            packed = gzip.decompress(packed)
        assert packed == plain
    if path:
        assert response.headers["Content-Encoding"] == "gzip"
    async with raw(served, url, **{"If-None-Match": tag}) as response:
        assert (response.status, await response.read()) == (304, b"")
    recorder.add([{"kind": "steps"}])
    await until(lambda: recorder.written >= 2)
    async with raw(served, url, **{"If-None-Match": tag}) as response:
        assert response.status == 200
        assert response.headers["ETag"] != tag


async def test_texts_of_users_are_kept_nowhere(serve_script: Any, tmp_path: Path) -> None:
    with Recorder(Store(tmp_path / "told.sqlite"), content=True) as recorder:
        recorder.add([{"kind": "steps"}])
        await until(lambda: recorder.written >= 1)
        served = await serve_script([], recorder=recorder)
        async with raw(served, "/v1/trace/live") as response:
            assert response.headers["Cache-Control"] == "no-store"


async def test_events_arrive_packed_and_at_once(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder)
    recorder.add([{"kind": "steps", "n": 1}])
    await until(lambda: recorder.written >= 1)
    async with raw(served, "/v1/trace/live/events", **GZIP) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        reader, text = zlib.decompressobj(wbits=31), b""
        for number in (1, 2):  # the second is written while the stream is open
            while b'"n":%d' % number not in text:
                text += reader.decompress(await response.content.readany())
            recorder.add([{"kind": "steps", "n": number + 1}])
        first = next(line for line in text.splitlines() if line.startswith(b"data: "))
        assert json.loads(first[6:])[0]["n"] == 1
