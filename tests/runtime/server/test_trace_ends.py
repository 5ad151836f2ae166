"""`/v1/trace` when what is asked for is odd, when an answer fails, and when the server ends."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording import recorder as subscription
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import serve, trace
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry
from tests.kit.waiting import until

FOREVER = 3600.0


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve") as made:
        yield made


def recorded_by_another(recorder: Recorder, count: int = 0) -> int:
    """The number of a recording that is live, and that no recorder of this process makes."""
    store = Store(recorder.store.path)
    with closing(store):
        made = store.begin("other", "serve")
        if count:
            rows = [row_of({"kind": "steps", "n": n, "fill": "x" * 100}) for n in range(count)]
            store.append(made, rows)
    return made


@pytest.mark.parametrize("path", ["live", "live/events", "live/export", "live/perfetto"])
async def test_what_is_sent_in_pieces_has_no_head(
    serve_script: Any, recorder: Recorder, path: str
) -> None:
    served = await serve_script([], recorder=recorder)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
    writer.write(f"HEAD /v1/trace/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answers = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    first, _, second = answers.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 405 ")
    assert second.startswith(b"HTTP/1.1 200 ")  # no body stands between the two


@pytest.mark.parametrize("digits", [19, 30, 5000])
async def test_numbers_without_end(serve_script: Any, recorder: Recorder, digits: int) -> None:
    served = await serve_script([], recorder=recorder)
    number = "9" * digits
    for path, status in ((number, 404), (f"live?after={number}", 400)):
        async with served.http.get(f"/v1/trace/{path}") as response:
            assert response.status == status
    recorder.add([{"kind": "steps"}])
    headers = {"Last-Event-ID": number}
    async with served.http.get("/v1/trace/live/events", headers=headers) as response:
        assert response.headers["Cache-Control"] == "no-store"
        assert await asyncio.wait_for(response.content.readline(), 60) == b"id: 1\n"


async def test_an_answer_that_cannot_be_ended_is_broken_off(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, page = recorded_by_another(recorder, 1200), catalog.page

    def until_it_is_taken_away(path: Path, number: int, after: int = 0, *more: Any) -> Any:
        if after:
            raise UsageError("the file is gone")
        return page(path, number, after, *more)

    served = await serve_script([], recorder=recorder)
    monkeypatch.setattr(catalog, "page", until_it_is_taken_away)
    for path in ("", "/events"):
        async with served.http.get(f"/v1/trace/{made}{path}") as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await asyncio.wait_for(response.read(), 60)


async def test_large_entries_are_read_a_few_at_a_time(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorded_by_another(recorder, 50)
    monkeypatch.setattr(catalog, "MAX_CHARACTERS", 500)
    assert len(catalog.page(recorder.store.path, made)) < 10
    assert len(list(catalog.entries(recorder.store.path, made))) == 50
    served = await serve_script([], recorder=recorder)
    for limit in (7, 50, 60):
        async with served.http.get(f"/v1/trace/{made}?limit={limit}") as response:
            answer = await response.json()
        assert [each["n"] for each in answer["entries"]] == list(range(min(limit, 50)))
        assert (answer["next"] is None) == (limit == 60)


async def test_who_watches_another_s_recording_does_not_keep_a_server_from_ending(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "LEAVE_SECONDS", 0.01)
    made = recorded_by_another(recorder, 1)
    served = await serve_script([], recorder=recorder)
    async with served.http.get(f"/v1/trace/{made}/events") as response:
        assert await response.content.readline() == b"id: 1\n"
        await served.app.leave()
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(response.read(), 60)


async def test_a_download_that_nobody_reads_is_broken_off_by_a_second_signal(
    recorder: Recorder,
) -> None:
    recorder.add([{"kind": "steps", "fill": os.urandom(250_000).hex()} for _ in range(40)])
    await until(lambda: recorder.written == 40)
    url = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(
            ScriptedEngine([]),
            Registry(),
            ServerOptions(port=0, shutdown_timeout=FOREVER),
            ServerParts(recorder=recorder),
            announce=url.set_result,
        )
    )
    port = int((await url).removesuffix("/v1").rpartition(":")[2])
    # A limit of 1 has the client take no more than that from the connection until it is read.
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET /v1/trace/live/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert await reader.readexactly(4) == b"HTTP"
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.05)
    assert not serving.done()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(serving, 60)
    writer.close()


async def test_who_is_behind_when_the_recording_ends_still_gets_the_rest(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_WAITING", 0)
    served = await serve_script([], recorder=recorder)
    recorder.add([{"kind": "steps", "n": 0}])
    async with served.http.get("/v1/trace/live/events") as response:
        assert await asyncio.wait_for(response.content.readline(), 60) == b"id: 1\n"
        recorder.add([{"kind": "steps", "n": 1}])
        recorder.close()  # in the event loop: what it tells the watcher comes all at once
        rest = await asyncio.wait_for(response.text(), 60)
    assert '"n":1' in rest
    assert rest.endswith("event: end\ndata: {}\n\n")
