"""Who asked: ids in answers, in the access log, on spans and in records."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server.http.access_log import Access, AccessLog
from caesura.runtime.server.keys.key import Key
from caesura.runtime.tracing.who import user_of
from tests.kit.spans import Spans, facts

CHAT = "/v1/chat/completions"
MODEL = "tiny/scripted"
ANN = {"Authorization": "Bearer a-secret"}
KEYS = [Key("a-secret", "Ann"), Key("b-secret")]
NAMED = {**ANN, "Caesura-Session": "main-2", "Caesura-Parent": "main-1", "X-Request-Id": "mine-7"}
WHO = {
    "caesura.tenant": "Ann",
    "user.id": "jo@example.com",
    "session.id": "main-2",
    "caesura.session.parent": "main-1",
    "caesura.x_request_id": "mine-7",
}


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(Store(tmp_path / "traces.sqlite"), "test", "serve") as made:
        yield made


@pytest.mark.parametrize("path", [CHAT, "/health", "/v1/nothing"])
async def test_an_answer_has_the_id_of_its_request(serve_script: Any, path: str) -> None:
    served = await serve_script(["Hi."])
    ids = []
    for given in ("mine-7", "", "with space", "x" * 129):
        headers = {"X-Request-Id": given} if given else {}
        async with served.http.get(path, headers=headers) as response:
            ids.append(response.headers["X-Request-Id"])
    assert ids[0] == "mine-7"
    assert all(each.startswith("req_") for each in ids[1:]) and len(set(ids)) == 4


async def test_an_answer_leads_to_its_request_on_the_page(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script(["Hi.", "Hi."], recorder=recorder)
    async with served.http.post(CHAT, json=served.body()) as response:
        answer = await response.json()
        address = response.headers["Caesura-Trace"]
    at, _, recording = address.partition("?rec=")
    assert at == f"/ui/#/session/{answer['id']}"
    number, _, started = recording.partition("-")
    assert (int(number), int(started, 36)) == (recorder.recording, int(recorder.started))
    async with served.http.get("/v1/models") as response:
        assert "Caesura-Trace" not in response.headers


async def test_a_server_that_records_nothing_leads_nowhere(serve_script: Any) -> None:
    served = await serve_script(["Hi."])
    async with served.http.post(CHAT, json=served.body()) as response:
        assert response.status == 200 and "Caesura-Trace" not in response.headers


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_a_run_tells_who_asked(serve_script: Any, spans: Spans, path: str) -> None:
    served = await serve_script(["Hi."], api_key=KEYS, tracing=spans.processor)
    bodies = {
        CHAT: served.body(user="jo@example.com"),
        "/v1/messages": served.body(max_tokens=9, metadata={"user_id": "jo@example.com"}),
        "/v1/responses": {"model": MODEL, "input": "Hello", "user": "jo@example.com"},
    }
    async with served.http.post(path, json=bodies[path], headers=NAMED) as response:
        assert response.status == 200, await response.text()
    run = facts(spans.one("invoke_agent"))
    assert {name: run.get(name) for name in WHO} == WHO
    assert run["caesura.request.id"] == facts(spans.one("chat"))["caesura.request.id"]


async def test_nobody_is_named_who_has_no_name(serve_script: Any, spans: Spans) -> None:
    served = await serve_script(["Hi.", "Hi."], tracing=spans.processor)
    await served.chat()
    body = {"model": MODEL, "input": "Hello"}
    async with served.http.post("/v1/responses", json=body) as response:
        assert response.status == 200
    for run in spans.named("invoke_agent"):
        told = facts(run)
        assert told.pop("caesura.x_request_id").startswith("req_")
        assert not set(WHO) & set(told)


@pytest.mark.parametrize("form", ["digest", "off"])
async def test_users_may_go_by_a_digest_or_unnamed(
    serve_script: Any, recorder: Recorder, form: Any
) -> None:
    served = await serve_script(["Hi."], recorder=recorder, users=form)
    await served.chat(user="jo@example.com")
    await served.app.close()
    recorder.close()
    assert recorder.recording is not None
    entries = list(catalog.entries(recorder.store.path, recorder.recording, ["span"]))
    assert entries and "jo@" not in json.dumps(entries)
    users = {entry["attributes"].get("user.id", "") for entry in entries}
    assert user_of("jo@example.com", form) in users
    assert user_of("jo@example.com", "digest") != user_of("al@example.com", "digest")


async def test_records_of_requests_tell_their_key_and_id(
    serve_script: Any, recorder: Recorder
) -> None:
    served = await serve_script(["Hi."], recorder=recorder, api_key=KEYS)
    async with served.http.post(CHAT, json=served.body(), headers=NAMED) as response:
        assert response.status == 200
    for key in ("a-secret", "b-secret", "unknown"):
        headers = {"Authorization": f"Bearer {key}", "X-Request-Id": f"of-{key}"}
        for _ in range(2):
            async with served.http.post(CHAT, json={"model": 1}, headers=headers) as response:
                assert response.status in (400, 401)
    await served.app.close()
    recorder.close()
    assert recorder.recording is not None
    entries = catalog.entries(recorder.store.path, recorder.recording, ["http"])
    told = [(one["status"], one["tenant"], one["request_id"], one["count"]) for one in entries]
    assert told == [
        (200, "Ann", "mine-7", 1),
        (400, "Ann", "of-a-secret", 2),
        (400, Key("b-secret").who, "of-b-secret", 2),
        (401, "", "of-unknown", 2),
    ]


@pytest.mark.parametrize("form", ["text", "json"])
async def test_each_request_has_a_line(
    serve_script: Any, capsys: pytest.CaptureFixture[str], form: Any
) -> None:
    served = await serve_script(["Secret."], api_key=KEYS, access_log=form)
    body = served.body(user="jo@example.com")
    async with served.http.post(f"{CHAT}?of=query", json=body, headers=NAMED) as response:
        answer = await response.json()
    async with served.http.get("/health") as response:
        assert response.status == 200
    async with served.http.post(CHAT, json={}, headers=ANN) as response:
        assert response.status == 400
    first, second = [line for line in capsys.readouterr().err.splitlines() if CHAT in line]
    for part in ("POST", "200", "Ann", "mine-7", answer["id"]):
        assert part in first
    assert "400" in second and "req_" in second
    for part in ("secret", "Secret", "jo@", "query", "Hello"):
        assert part not in first + second
    if form == "json":
        told = json.loads(first)
        assert told.pop("time").endswith("Z") and told.pop("seconds") >= 0
        assert told == {
            "method": "POST",
            "path": CHAT,
            "status": 200,
            "tenant": "Ann",
            "request_id": "mine-7",
            "id": answer["id"],
        }


def test_a_path_writes_no_line_of_its_own() -> None:
    out = io.StringIO()
    log = AccessLog("text", out, lambda: 0.0)
    log.add(Access("GET", "/a\n1970 GET /forged", 404, 0.5, "An n", "r"))
    log.add(Access("GET", "/ready", 503, 0.001))
    log.add(Access("GET", "/ready", 200, 0.001))
    assert out.getvalue().splitlines() == [
        '1970-01-01T00:00:00Z GET /a%0A1970%20GET%20/forged 404 0.500s tenant="An n" request="r"',
        "1970-01-01T00:00:00Z GET /ready 503 0.001s",
    ]
