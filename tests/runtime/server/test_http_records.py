"""What is recorded of requests to the server: answers, refusals, and clients that left."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.testing import call
from caesura.scheduler.records import HttpRecord, parse
from tests.kit.waiting import until

CHAT = "/v1/chat/completions"


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve") as made:
        yield made


async def told(recorder: Recorder, served: Any) -> list[HttpRecord]:
    """The records of a server that has ended."""
    await served.app.close()
    await asyncio.to_thread(recorder.close)
    return stored(recorder)


def stored(recorder: Recorder) -> list[HttpRecord]:
    """The records that are in the file."""
    assert recorder.recording is not None
    entries = catalog.entries(recorder.store.path, recorder.recording, ["http"])
    found = [parse(entry) for entry in entries]
    return [one for one in found if isinstance(one, HttpRecord)]


async def test_answers_and_refusals_are_recorded(serve_script, recorder) -> None:
    served = await serve_script(["Good.", "Fine."], recorder=recorder)
    _, body = await served.chat()
    await served.events()
    for _ in range(3):
        async with served.http.post(CHAT, json={"model": 1}) as response:
            assert response.status == 400
    async with served.http.post("/v1/nothing?key=secret") as response:
        assert response.status == 404
    async with served.http.post(CHAT, data="{}", headers={"Content-Type": "text/plain"}) as got:
        assert got.status == 415
    found = await told(recorder, served)
    said = [(one.route, one.status, one.code, one.count) for one in found]
    assert said[:2] == [(CHAT, 200, "", 1)] * 2
    assert [one[1:] for one in said[2:]] == [
        (400, found[2].code, 3),
        (404, "unknown_url", 1),
        (415, "unsupported_media_type", 1),
    ]
    assert found[0].answer == body["id"] and found[0].seconds > 0
    assert said[3][0] == "unknown"
    assert "secret" not in json.dumps([one.entry() for one in found])


async def test_too_many_at_once_and_without_a_key(serve_script, recorder, hanging) -> None:
    served = await serve_script(
        [call("hang"), "Done."], [hanging.tool], recorder=recorder, max_concurrent=1, api_key="k"
    )
    key = {"Authorization": "Bearer k"}
    body = served.body(server_tools=["hang"])
    asking = asyncio.create_task(served.http.post(CHAT, json=body, headers=key))
    await hanging.started.wait()
    for headers, status in ((key, 429), ({}, 401)):
        async with served.http.post(CHAT, json=body, headers=headers) as response:
            assert response.status == status
    hanging.released.set()
    (await asking).release()
    found = await told(recorder, served)
    assert {(one.route, one.status, one.code) for one in found} == {
        (CHAT, 200, ""),
        (CHAT, 429, "too_many_requests"),
        (CHAT, 401, "invalid_api_key"),
    }


async def test_a_client_that_leaves(serve_script, recorder, hanging) -> None:
    served = await serve_script([call("hang"), "Done."], [hanging.tool], recorder=recorder)
    body = served.body(server_tools=["hang"], stream=True)
    asking = asyncio.create_task(served.http.post(CHAT, json=body))
    await hanging.started.wait()
    asking.cancel()
    await served.http.close()
    await hanging.cancelled.wait()
    await until(lambda: stored(recorder))
    (one,) = await told(recorder, served)
    assert (one.route, one.status, one.count) == (CHAT, 499, 1)
    assert one.answer.startswith("chatcmpl-")


async def test_what_only_watches_leaves_no_record(serve_script, recorder) -> None:
    served = await serve_script([], recorder=recorder)
    paths = ("/health", "/metrics", "/ui/", "/v1/trace", "/v1/trace/99", "/favicon.ico")
    for path in (*paths, "/v1/models"):
        async with served.http.get(path) as response:
            await response.read()
    async with served.http.post("/v1/what-if", json={}) as response:
        await response.read()
    assert await told(recorder, served) == []
