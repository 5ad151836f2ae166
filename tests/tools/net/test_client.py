"""The tools' HTTP client against a server on this machine."""

import asyncio
import gzip
import json
import socket
import time
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools.loops import on_loop
from caesura.tools.net import (
    MAX_DEPTH,
    MAX_RETRY_AFTER_SECONDS,
    HttpClient,
    HttpRefused,
    HttpUnavailable,
    Outgoing,
    load_json,
    media_type_of,
    retry_after,
)
from tests.kit.loops import another_loop

JSON = {"Content_Type": "application/json; charset=utf-8"}


async def test_json_with_a_query_and_headers(client, site) -> None:
    url = site.says("/api", b'{"found": [1, 2]}', **JSON)
    value = await client.json(
        Outgoing(f"{url}?a=1", params={"q": "tea & toast"}, headers={"X-Key": "k"})
    )
    assert value == {"found": [1, 2]}
    (request,) = site.seen
    assert dict(request.query) == {"a": "1", "q": "tea & toast"}
    assert request.headers["X-Key"] == "k"
    assert request.headers["User-Agent"].startswith("caesura/")


async def test_a_json_body_is_posted(client, site) -> None:
    bodies = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response({"ok": True})

    site.answers["/api"] = answer
    assert await client.json(Outgoing(site.url("/api"), body={"text": "é"})) == {"ok": True}
    assert bodies == [{"text": "é"}]


async def test_bytes_and_their_kind(client, site) -> None:
    url = site.says("/a", b"RIFF", Content_Type="Audio/WAV; rate=8000")
    reply = await client.file(Outgoing(url, body={}, accept=("audio/*",)))
    assert (reply.data, reply.media_type) == (b"RIFF", "audio/wav")


async def test_a_wrong_kind_of_content(client, site) -> None:
    url = site.says("/a", b"<html>", Content_Type="text/html")
    with pytest.raises(HttpRefused, match="did not answer with application/json"):
        await client.json(Outgoing(url))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "invalid JSON"),
        (b"\xff\xfe{", "invalid JSON"),
        (b'{"a": NaN}', "NaN is not allowed"),
        (b"[" * 5000, "nests deeper than 64 levels"),
        (b"[" * 99 + b"]" * 99, "nests deeper than 64 levels"),
        (b"[" + b"1" * 9000 + b"]", "invalid JSON"),
        (b"", "invalid JSON"),
    ],
)
async def test_what_is_no_good_json(client, site, body: bytes, reason: str) -> None:
    with pytest.raises(HttpRefused, match=reason):
        await client.json(Outgoing(site.says("/a", body, **JSON)))


@given(st.binary(max_size=200) | st.text('[]{},:"0 \\u', max_size=200))
def test_any_bytes_are_json_or_a_value_error(data) -> None:
    try:
        value = load_json(data)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        json.dumps(value)


def test_nesting_up_to_the_bound() -> None:
    assert load_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError, match="nests deeper"):
        load_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


async def test_a_body_that_says_it_is_too_long(client, site) -> None:
    with pytest.raises(HttpRefused, match="longer answer than the 100000 bytes"):
        await client.file(Outgoing(site.says("/a", b"x" * 100_001)))


async def test_a_body_that_grows_without_saying_so(client, site) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b"x" * 10_000)
            sent += 10_000
        return response

    site.answers["/a"] = answer
    with pytest.raises(HttpRefused, match="longer answer than the 100000 bytes"):
        await client.file(Outgoing(site.url("/a")))
    assert sent < 100_000_000


async def test_a_packed_body(client, site) -> None:
    data = b"text " * 19_000
    url = site.says("/a", gzip.compress(data), Content_Encoding="gzip")
    assert (await client.file(Outgoing(url))).data == data


async def test_a_packed_bomb(client, site) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 100_000
    with pytest.raises(HttpRefused, match="longer answer than the 100000 bytes"):
        await client.file(Outgoing(site.says("/a", bomb, Content_Encoding="gzip")))


@pytest.mark.parametrize(
    ("body", "packing"),
    [(b"not gzip", "gzip"), (gzip.compress(b"x" * 999)[:-9], "gzip"), (b"x", "br")],
    ids=["not packed", "cut", "unknown"],
)
async def test_a_body_that_cannot_be_unpacked(client, site, body: bytes, packing: str) -> None:
    with pytest.raises(HttpRefused):
        await client.file(Outgoing(site.says("/a", body, Content_Encoding=packing)))


async def test_a_redirect_is_followed_without_the_keys(client, site) -> None:
    site.says("/first", status=302, Location="/second")
    site.says("/second", status=307, Location=site.url("/third", host="localhost"))
    site.says("/third", b"there")
    reply = await client.file(Outgoing(site.url("/first"), headers={"X-Key": "k"}))
    assert reply.data == b"there"
    assert ["X-Key" in request.headers for request in site.seen] == [True, True, False]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/", "http://u:p@x/", "http://["])
async def test_a_redirect_to_no_good_address(client, site, target: str) -> None:
    with pytest.raises(HttpRefused, match="redirects to a bad address"):
        await client.file(Outgoing(site.says("/a", status=301, Location=target)))


async def test_redirects_without_end(client, site) -> None:
    with pytest.raises(HttpRefused, match="redirected more than 5 times"):
        await client.file(Outgoing(site.says("/a", status=302, Location="/a")))
    assert len(site.seen) == 6


async def test_a_post_is_not_redirected(client, site) -> None:
    with pytest.raises(HttpRefused, match="redirects a POST"):
        await client.json(Outgoing(site.says("/a", status=307, Location="/b"), body={}))
    assert len(site.seen) == 1


async def test_time_is_bounded_over_the_whole_request(site) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:  # never silent, never done
            await response.write(b"x")
            await asyncio.sleep(0.01)

    site.answers["/a"] = answer
    client = HttpClient(allow_private=True, timeout_seconds=0.2)
    with pytest.raises(HttpUnavailable, match=r"did not answer within 0\.2 seconds"):
        await client.file(Outgoing(site.url("/a")))
    await client.aclose()


async def test_a_busy_server_says_when_to_come_back(client, site) -> None:
    with pytest.raises(HttpUnavailable, match="answered 429") as caught:
        await client.json(Outgoing(site.says("/a", status=429, Retry_After="17")))
    assert (caught.value.status, caught.value.retry_after) == (429, 17.0)


async def test_errors_that_pass_and_errors_that_stay(client, site) -> None:
    with pytest.raises(HttpUnavailable) as passing:
        await client.json(Outgoing(site.says("/a", status=503)))
    assert passing.value.retry_after is None
    with pytest.raises(HttpRefused, match="answered 404"):
        await client.json(Outgoing(site.says("/b", status=404)))


async def test_no_server_listens(client, site) -> None:
    with socket.socket() as deaf:  # the port is taken, and refuses connections
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(HttpUnavailable, match=r"no connection to 127\.0\.0\.1"):
            await client.file(Outgoing(f"http://127.0.0.1:{deaf.getsockname()[1]}/"))


async def test_a_connection_that_breaks_off(client, site) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x")
        request.transport.abort()
        return response

    site.answers["/a"] = answer
    with pytest.raises(HttpUnavailable, match="closed the connection early"):
        await client.file(Outgoing(site.url("/a")))


async def test_no_error_tells_what_a_url_holds(client, site) -> None:
    url = site.says("/a", status=500)
    with pytest.raises(HttpUnavailable) as caught:
        await client.file(Outgoing(f"{url}?key=sesame"))
    assert "sesame" not in str(caught.value)


async def test_closing_twice_and_opening_again(client, site) -> None:
    url = site.says("/a", b"x")
    await client.file(Outgoing(url))
    await client.aclose()
    await client.aclose()
    assert (await client.file(Outgoing(url))).data == b"x"


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after(None) is None
    assert retry_after("0") == 0.0
    assert retry_after("-5") == 0.0
    assert retry_after("1e99") == MAX_RETRY_AFTER_SECONDS
    assert retry_after("nan") is None
    assert retry_after("soon") is None
    assert retry_after(formatdate(time.time() - 100, usegmt=True)) == 0.0
    assert 5_000 < (retry_after(formatdate(time.time() + 7_200, usegmt=True)) or 0) <= 7_200


@given(st.text(max_size=40))
def test_any_retry_after(text: str) -> None:
    seconds = retry_after(text)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


def test_media_types() -> None:
    assert media_type_of("Image/PNG; q=1", ("image/*",)) == "image/png"
    assert media_type_of("application/problem+json", ("+json",)) == "application/problem+json"
    assert media_type_of(None, ("image/png",)) is None
    assert media_type_of(None, ()) == "application/octet-stream"


def test_it_goes_on_in_a_second_event_loop_when_the_first_has_ended() -> None:
    client = HttpClient(allow_private=True)

    async def ask() -> int:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"ok": True})

        app = web.Application()
        app.router.add_get("/", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return len(await client.json(Outgoing(f"http://127.0.0.1:{runner.addresses[0][1]}/")))
        finally:
            await runner.cleanup()

    assert [asyncio.run(ask()) for _ in range(3)] == [1, 1, 1]
    asyncio.run(client.aclose())


async def test_each_event_loop_has_connections_of_its_own(client: HttpClient, site: Any) -> None:
    request = Outgoing(site.says("/api", b"{}", **JSON))
    with another_loop() as there:
        for loop in (there, asyncio.get_running_loop(), there):
            assert await on_loop(loop, lambda: client.json(request)) == {}
        await client.aclose()
    assert await client.json(request) == {}
