"""`/v1/trace` and `/ui/`: what was recorded, what is being recorded, and the page that shows it."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.recording import recorder as subscription
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import trace
from caesura.runtime.testing import call, say
from caesura.tools.artifacts import ArtifactStore
from tests.kit.server import Served
from tests.kit.waiting import until

DATA_ROUTES = ("", "/live", "/live/events", "/live/export", "/live/perfetto")
PAGE_ROUTES = ("/ui/", "/ui/ui.js", "/ui/ui.css")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve", {"model": "m"}) as made:
        yield made


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"kind": "steps", "n": number, **more}


async def written(recorder: Recorder, count: int) -> None:
    await until(lambda: recorder.written >= count)


async def get(served: Served, path: str, **options: Any) -> Any:
    async with served.http.get(f"/v1/trace{path}", **options) as response:
        assert response.status == 200, await response.text()
        return await response.json()


class Watching:
    """A client of an event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[int, list[dict[str, Any]]] | None:
        """The next event's id and entries; None at the end."""
        number, entries = 0, None
        async for raw in self._response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif line == "event: end":
                return None
            elif line.startswith("data: "):
                entries = json.loads(line.removeprefix("data: "))
            elif not line and entries is not None:
                return number, entries
        raise EOFError

    async def until(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = await self.next()
            assert event is not None
            assert event[0] == event[1][-1]["id"]
            found += event[1]
        return found


@asynccontextmanager
async def watching(served: Served, path: str, **options: Any) -> AsyncIterator[Watching]:
    async with served.http.get(f"/v1/trace/{path}", **options) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Watching(response)


async def test_recordings_and_their_entries(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder)
    recorder.add([step(n, id="of its own") for n in range(1200)])
    await written(recorder, 1200)
    (found,) = (await get(served, ""))["recordings"]
    assert (found["title"], found["source"], found["live"]) == ("test", "serve", True)
    assert (found["entries"], found["about"]) == (1200, {"model": "m"})
    whole = await get(served, f"/{found['id']}")
    assert whole["next"] is None
    assert [each["n"] for each in whole["entries"]] == list(range(1200))
    ids = [each["id"] for each in whole["entries"]]
    assert ids == sorted(set(ids))
    files = await get(served, "/live?limit=700")
    assert (len(files["entries"]), files["next"]) == (700, ids[699])
    rest = await get(served, f"/live?after={files['next']}&limit=700")
    assert [each["n"] for each in rest["entries"]] == list(range(700, 1200))
    assert rest["next"] is None
    assert (await get(served, f"/live?after={ids[-1]}")) == {"entries": [], "next": None}


async def test_an_entry_without_anything_is_still_json(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script([], recorder=recorder)
    recorder.add([{}])
    await written(recorder, 1)
    assert (await get(served, "/live"))["entries"] == [{"id": 1}]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/99", 404),
        ("/nonsense", 404),
        ("/99999999999999999999", 404),
        ("/99/events", 404),
        ("/99/export", 404),
        ("/live?after=x", 400),
        ("/live?limit=0", 400),
        ("/live?limit=50001", 400),
        ("/live/events?after=-1", 400),
    ],
)
async def test_what_is_not_there(
    serve_script: Any, recorder: Recorder, path: str, status: int
) -> None:
    served = await serve_script([], recorder=recorder)
    async with served.http.get(f"/v1/trace{path}") as response:
        assert response.status == status
        assert (await response.json())["error"]["message"].endswith(".")


async def test_a_server_that_records_nothing_says_so(serve_script: Any) -> None:
    served = await serve_script([])
    for path in DATA_ROUTES:
        async with served.http.get(f"/v1/trace{path}") as response:
            assert response.status == 404
            error = (await response.json())["error"]
            assert error["code"] == "not_recorded" and "--no-trace" in error["message"]


async def test_every_route_with_data_needs_the_key(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder, api_key="secret")
    for path in DATA_ROUTES:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with served.http.get(f"/v1/trace{path}", headers=headers) as response:
                assert response.status == 401, path
                assert "test" not in await response.text()
        headers = {"Authorization": "Bearer secret"}
        async with served.http.get(f"/v1/trace{path}", headers=headers) as response:
            assert response.status == 200, path


# -- live ------------------------------------------------------------------------------------------


async def test_recordings_are_changed_and_deleted(serve_script: Any, recorder: Recorder) -> None:
    old = recorder.store.begin("old", "serve")
    recorder.store.append(old, [row_of(step(1))])
    recorder.store.end(old)
    served = await serve_script([], recorder=recorder, api_key="right-key-of-16-bytes")
    key = {"Authorization": "Bearer right-key-of-16-bytes"}
    path = f"/v1/trace/{old}"
    for send in (served.http.patch(path, json={"title": "x"}), served.http.delete(path)):
        async with send as refused:
            assert refused.status == 401
    wanted = {"title": "before", "note": "<b>slow</b>", "pinned": True}
    async with served.http.patch(path, json=wanted, headers=key) as response:
        changed = await response.json()
        assert {name: changed[name] for name in wanted} == wanted
    listed = (await get(served, "", headers=key))["recordings"]
    assert [(one["title"], one["own"]) for one in listed] == [("before", False), ("test", True)]
    async with served.http.delete(path, headers=key) as response:
        assert await response.json() == {"id": old, "deleted": True}
    async with served.http.get(path, headers=key) as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "send at least one of title, note and pinned"),
        ({"title": " "}, "A title has 1 to 200 characters"),
        ({"note": "x" * 4001}, "A note has at most 4000 characters"),
        ({"pinned": 1}, "pinned: "),
        ({"colour": "red"}, "colour: "),
    ],
)
async def test_changes_that_are_none(
    serve_script: Any, recorder: Recorder, body: Any, said: str
) -> None:
    served = await serve_script([], recorder=recorder)
    async with served.http.patch("/v1/trace/live", json=body) as response:
        assert response.status == 400
        assert said in (await response.json())["error"]["message"]


async def test_changes_of_other_pages_are_refused(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder)
    text = {"Content-Type": "text/plain"}
    async with served.http.patch("/v1/trace/live", data='{"title": "x"}', headers=text) as response:
        assert response.status == 415
    foreign = {"Origin": "https://evil.example"}
    async with served.http.delete("/v1/trace/live", headers=foreign) as response:
        assert response.status == 403
    async with served.http.delete("/v1/trace/live") as response:
        assert response.status == 409
        assert "stop the server" in (await response.json())["error"]["message"]


async def test_the_root_leads_to_the_page(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder, api_key="right-key-of-16-bytes")
    async with served.http.get("/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (307, "ui/")
    async with served.http.get("/") as response:
        assert response.url.path == "/ui/"


async def test_what_comes_is_sent_as_it_comes(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder)
    recorder.add([step(0), step(1)])
    await written(recorder, 2)
    async with watching(served, "live/events") as watcher:
        assert [each["n"] for each in await watcher.until(2)] == [0, 1]
        recorder.add([step(2)])
        event = await watcher.next()
        assert event is not None and event[1] == [{**step(2), "id": event[0]}]
        await asyncio.to_thread(recorder.close)
        assert await watcher.next() is None


async def test_a_stream_is_taken_up_where_it_broke_off(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script([], recorder=recorder)
    async with watching(served, "live/events") as watcher:
        recorder.add([step(n) for n in range(10)])
        last = (await watcher.until(10))[4]["id"]
    recorder.add([step(10)])
    for options in ({"params": {"after": last}}, {"headers": {"Last-Event-ID": str(last)}}):
        async with watching(served, "live/events", **options) as watcher:
            assert [each["n"] for each in await watcher.until(6)] == [5, 6, 7, 8, 9, 10]


async def test_a_recording_that_has_ended_is_sent_to_its_end(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script([], recorder=recorder)
    other = Store(recorder.store.path)
    made = other.begin("other", "serve")
    other.append(made, [row_of(step(n)) for n in range(1100)])
    other.end(made)
    async with watching(served, f"{made}/events") as watcher:
        assert [each["n"] for each in await watcher.until(1100)] == list(range(1100))
        assert await watcher.next() is None


async def test_another_process_s_recording_is_followed(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "POLL_SECONDS", 0.02)
    served = await serve_script([], recorder=recorder)
    other = Store(recorder.store.path)
    made = other.begin("other", "serve")
    async with watching(served, f"{made}/events") as watcher:
        other.append(made, [row_of(step(0))])
        assert [each["n"] for each in await watcher.until(1)] == [0]
        other.append(made, [row_of(step(1))])
        other.end(made)
        assert [each["n"] for each in await watcher.until(1)] == [1]
        assert await watcher.next() is None


async def test_a_client_that_is_slow_gets_everything(
    serve_script: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_WAITING", 5)
    served = await serve_script([], recorder=recorder)
    async with watching(served, "live/events") as watcher:
        for first in range(0, 2000, 40):
            recorder.add([step(n, fill="x" * 10_000) for n in range(first, first + 40)])
            await asyncio.sleep(0.002)
        await written(recorder, 2000)
        found = [each["n"] for each in await watcher.until(2000)]
    assert found == list(range(2000))


async def test_silence_is_filled_with_comments(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder, keep_alive_seconds=0.05)
    async with served.http.get("/v1/trace/live/events") as response:
        assert await response.content.readline() == b": keep-alive\n"


async def test_a_client_that_leaves_is_forgotten(serve_script: Any, recorder: Recorder) -> None:
    served = await serve_script([], recorder=recorder)
    async with watching(served, "live/events") as watcher:
        recorder.add([step(0)])
        await watcher.until(1)
        assert len(recorder._subscriptions) == 1
    await until(lambda: not recorder._subscriptions)


async def test_watchers_do_not_keep_a_server_from_ending(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script([], recorder=recorder)
    async with watching(served, "live/events") as watcher:
        await served.app.leave()
        assert await watcher.next() is None


# -- what a server records -------------------------------------------------------------------------


async def test_a_run_is_recorded_without_what_was_said(
    serve_script: Any, recorder: Recorder, double: Any
) -> None:
    script = [call("double", number=21), say("It is 42.")]
    served = await serve_script(script, [double], recorder=recorder, tracing=False)
    await served.chat(server_tools=["double"])
    await written(recorder, 7)
    entries = (await get(served, "/live"))["entries"]
    (answered,) = [each for each in entries if each["kind"] == "http"]
    entries.remove(answered)
    told = [(each["attributes"]["gen_ai.operation.name"], each["end"] is None) for each in entries]
    assert sorted(told) == [
        ("chat", False),
        ("chat", False),
        ("execute_tool", False),
        ("execute_tool", True),
        ("invoke_agent", False),
        ("invoke_agent", True),
    ]
    assert told[0] == ("invoke_agent", True) and told[-1] == ("invoke_agent", False)
    chats = [each["attributes"] for each in entries if each["name"].startswith("chat")]
    assert [each["caesura.request.id"] for each in chats] == ["scripted-1", "scripted-1"]
    text = json.dumps(entries)
    assert not [said for said in ("Hello", "It is", "number", "gen_ai.input") if said in text]
    metrics = await served.metrics()
    assert "caesura_trace_entries_total 7.0" in metrics
    assert "caesura_trace_entries_dropped_total 0.0" in metrics


async def test_metrics_without_a_recorder_do_not_count_entries(serve_script: Any) -> None:
    assert "caesura_trace" not in await (await serve_script([])).metrics()


# -- exports ---------------------------------------------------------------------------------------


async def test_the_export_holds_the_recording(
    serve_script: Any, tmp_path: Path, double: Any
) -> None:
    artifacts = ArtifactStore(tmp_path / "artifacts")
    picture = artifacts.put(b"a picture", "png")
    named = {"caesura.tool.artifacts": [picture.name, "gone.png"]}
    with Recorder(Store(tmp_path / "t.sqlite"), content=True) as recorder:
        served = await serve_script([], recorder=recorder, artifacts=artifacts)
        recorder.add([step(n) for n in range(3)])
        recorder.add([{"kind": "span", "attributes": named}])
        await written(recorder, 4)
        async with served.http.get("/v1/trace/live/export") as response:
            assert response.status == 200
            assert response.headers["Content-Disposition"].startswith("attachment")
            html = await response.text()
    found = re.search(r'id="caesura-data">([^<]*)</script>', html)
    assert found is not None
    data = json.loads(gzip.decompress(base64.b64decode(found[1])))
    (recording,) = data["recordings"]
    assert [each.get("n") for each in recording["data"]] == [0, 1, 2, None]
    assert recording["content"] is True
    assert list(data["artifacts"]) == [picture.name]
    kept = data["artifacts"][picture.name]
    assert (kept["type"], base64.b64decode(kept["base64"])) == ("image/png", b"a picture")


async def test_perfetto_gets_a_trace(serve_script: Any, recorder: Recorder, double: Any) -> None:
    script = [call("double", number=21), say("It is 42.")]
    served = await serve_script(script, [double], recorder=recorder)
    await served.chat(server_tools=["double"])
    await written(recorder, 6)
    async with served.http.get("/v1/trace/live/perfetto") as response:
        assert response.status == 200
        events = (await response.json(content_type=None))["traceEvents"]
    assert any("double" in str(event.get("name")) for event in events)


# -- the page --------------------------------------------------------------------------------------


async def test_the_page_needs_no_key_and_is_kept_strict(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script([], recorder=recorder, api_key="secret")
    for path in PAGE_ROUTES:
        async with served.http.get(path) as response:
            assert response.status == 200
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert "http" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
    async with served.http.get("/ui", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (308, "ui/")
    async with served.http.get("/ui?rec=3") as response:
        assert response.status == 200 and response.url.path == "/ui/"


async def test_a_page_that_was_not_built_says_how_to(
    serve_script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from caesura.runtime.recording import files

    monkeypatch.setattr(files, "files", lambda _: tmp_path)
    files.built.cache_clear()
    served = await serve_script([])
    async with served.http.get("/ui/") as response:
        assert response.status == 404
        assert "npm run build" in (await response.json())["error"]["message"]
    files.built.cache_clear()
