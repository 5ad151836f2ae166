"""Records of several keys: each key finds its own, and another one's are not there."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.responses.store import PostgresResponses, ResponseStore, SqliteResponses
from caesura.runtime.testing import ScriptedEngine, call, calls, say, think
from caesura.tools import tool
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People, make_ask_user, with_approval
from caesura.tools.result import Output
from tests.kit.server import MODEL, Served
from tests.kit.waiting import until

KEYS = [
    Key("ann-secret", "ann"),
    Key("bob-secret", "bob"),
    Key("vic-secret", "vic", role=Role.VIEW),
    Key("amy-secret", "amy", role=Role.APPROVE),
    Key("ada-secret", "ada", role=Role.ADMIN),
]
ANN, BOB, VIC, AMY, ADA = ({"Authorization": f"Bearer {key.secret}"} for key in KEYS)
RESPONSE, CONVERSATION, ITEM = "resp_" + "0" * 32, "conv_" + "0" * 32, "msg_" + "0" * 32
MCP: Any = {"type": "mcp", "server_label": "caesura"}

Answer = tuple[int, Any]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> ResponseStore:
    if request.param == "sqlite":
        return SqliteResponses(None)
    return PostgresResponses(request.getfixturevalue("database"))


async def ask(
    served: Served, who: Mapping[str, str], method: str, path: str, body: Any = None
) -> Answer:
    async with served.http.request(method, path, json=body, headers=who) as response:
        text = await response.text()
        return response.status, (await response.json()) if text.startswith("{") else text


async def create(served: Served, who: Mapping[str, str], **fields: Any) -> Answer:
    body = {"model": MODEL, "input": "The colour is purple."} | fields
    return await ask(served, who, "POST", "/v1/responses", body)


def without(answer: Answer, *ids: str) -> Answer:
    """An answer with its ids blotted out."""
    text = repr(answer[1])
    for each in ids:
        text = text.replace(each, "ID")
    return answer[0], text


async def check_same_as_unknown(
    served: Served, method: str, path: str, body: Any, ids: Mapping[str, str]
) -> None:
    """Bob is told the same about Ann's record as about one that never was."""
    told = []
    for known in (True, False):
        text = path
        filled = body
        for name, ann_s in ids.items():
            value = ann_s if known else {"r": RESPONSE, "c": CONVERSATION, "i": ITEM}[name]
            text = text.replace(f"<{name}>", value)
            filled = _filled(filled, f"<{name}>", value)
        answer = await ask(served, BOB, method, text, filled)
        told.append(without(answer, *ids.values(), RESPONSE, CONVERSATION, ITEM))
    status = 400 if "previous_response_not_found" in str(told[0]) else 404
    assert told[0][0] == status, (method, path, told[0])
    assert told[0] == told[1]


def _filled(body: Any, name: str, value: str) -> Any:
    if isinstance(body, dict):
        return {key: _filled(each, name, value) for key, each in body.items()}
    if isinstance(body, list):
        return [_filled(each, name, value) for each in body]
    return value if body == name else body


ASKING = {"model": MODEL, "input": "Which?"}
REFERENCE = [{"type": "item_reference", "id": "<i>"}, {"role": "user", "content": "Which?"}]
ITEMS = {"items": [{"type": "message", "role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/responses/<r>", None),
        ("GET", "/v1/responses/<r>?stream=true", None),
        ("GET", "/v1/responses/<r>/input_items", None),
        ("POST", "/v1/responses/<r>/cancel", {}),
        ("DELETE", "/v1/responses/<r>", None),
        ("POST", "/v1/responses", ASKING | {"previous_response_id": "<r>"}),
        ("POST", "/v1/responses", ASKING | {"conversation": "<c>"}),
        ("POST", "/v1/responses", {"model": MODEL, "input": REFERENCE}),
        ("POST", "/v1/responses/input_tokens", ASKING | {"previous_response_id": "<r>"}),
        ("POST", "/v1/responses/input_tokens", {"model": MODEL, "input": REFERENCE}),
        ("POST", "/v1/responses/compact", ASKING | {"previous_response_id": "<r>"}),
        ("GET", "/v1/conversations/<c>", None),
        ("POST", "/v1/conversations/<c>", {"metadata": {"a": "b"}}),
        ("DELETE", "/v1/conversations/<c>", None),
        ("GET", "/v1/conversations/<c>/items", None),
        ("POST", "/v1/conversations/<c>/items", ITEMS),
        ("GET", "/v1/conversations/<c>/items/<i>", None),
        ("DELETE", "/v1/conversations/<c>/items/<i>", None),
        ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": "<i>"}]}),
    ],
)
async def test_another_keys_record_is_not_there(
    serve_script: Any, store: ResponseStore, method: str, path: str, body: Any
) -> None:
    served = await serve_script([say("Fine.")] * 4, api_key=KEYS, store=store)
    _, response = await create(served, ANN)
    _, talk = await ask(served, ANN, "POST", "/v1/conversations", ITEMS)
    kept = f"/v1/conversations/{talk['id']}"
    _, listed = await ask(served, ANN, "GET", f"{kept}/items")
    ids = {"r": response["id"], "c": talk["id"], "i": listed["data"][0]["id"]}
    await check_same_as_unknown(served, method, path, body, ids)
    for who in (ANN, ADA):  # for them all is still there, as it was
        assert (await ask(served, who, "GET", f"/v1/responses/{response['id']}"))[1] == response
        assert (await ask(served, who, "GET", kept))[1] == talk
        assert (await ask(served, who, "GET", f"{kept}/items"))[1] == listed


async def test_a_key_continues_its_own_and_an_administrator_everybodys(
    serve_script: Any, store: ResponseStore
) -> None:
    served = await serve_script([say("Fine.")] * 3, api_key=KEYS, store=store)
    _, first = await create(served, ANN)
    for who in (ANN, ADA):
        status, second = await create(served, who, previous_response_id=first["id"])
        assert (status, second["previous_response_id"]) == (200, first["id"])
    assert (await ask(served, ANN, "GET", f"/v1/responses/{second['id']}"))[0] == 404, "it is Ada's"
    assert (await ask(served, ADA, "DELETE", f"/v1/responses/{first['id']}"))[0] == 200


async def test_records_of_a_server_without_keys_are_an_administrators(serve_script: Any) -> None:
    store = SqliteResponses(None)
    open_to_all = await serve_script([say("Fine.")], store=store)
    _, made = await create(open_to_all, {})
    one = await serve_script([], store=store, api_key="another-secret")
    several = await serve_script([], store=store, api_key=KEYS)
    path = f"/v1/responses/{made['id']}"
    assert (await ask(one, {"x-api-key": "another-secret"}, "GET", path))[0] == 200
    statuses = [(await ask(several, who, "GET", path))[0] for who in (ANN, BOB, VIC, AMY, ADA)]
    assert statuses == [404, 404, 404, 404, 200]


async def test_a_single_key_finds_what_another_one_has_stored(serve_script: Any) -> None:
    """As always: a server whose only key is replaced keeps its responses."""
    store = SqliteResponses(None)
    before = await serve_script([say("Fine.")], store=store, api_key="old-secret")
    _, made = await create(before, {"x-api-key": "old-secret"})
    after = await serve_script([say("Fine.")], store=store, api_key="new-secret")
    status, _ = await create(after, {"x-api-key": "new-secret"}, previous_response_id=made["id"])
    assert status == 200


async def test_a_response_under_way_is_its_keys(serve_script: Any, hanging: Any) -> None:
    script = [calls(call("hang"), text="I wait."), say("Done.")]
    served = await serve_script(script, [hanging.tool], api_key=KEYS)
    tools = [MCP | {"allowed_tools": ["hang"]}]
    _, made = await create(served, ANN, background=True, tools=tools)
    await hanging.started.wait()
    path = f"/v1/responses/{made['id']}"
    for method, more in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel"), ("DELETE", "")):
        body = {} if method == "POST" else None
        assert (await ask(served, BOB, method, path + more, body))[0] == 404
    assert not hanging.cancelled.is_set()
    assert (await ask(served, ANN, "GET", path))[1]["status"] == "in_progress"
    hanging.released.set()
    status, text = await ask(served, ANN, "GET", path + "?stream=true")
    assert status == 200 and "Done." in text
    assert (await ask(served, BOB, "GET", path + "?stream=true"))[0] == 404, "its kept events too"
    assert (await ask(served, BOB, "DELETE", path))[0] == 404
    assert (await ask(served, ANN, "GET", path + "?stream=true"))[1] == text


async def test_an_approval_in_a_response_is_decided_by_its_key(
    serve_script: Any, double: Any
) -> None:
    people = People()
    script = [call("double", number=4), say("8.")]
    served = await serve_script(
        script, [with_approval(double, people)], api_key=KEYS, people=people
    )
    tools = [MCP | {"allowed_tools": ["double"]}]
    _, first = await create(served, ANN, tools=tools)
    asked = first["output"][-1]["id"]

    def decision(request_id: str) -> dict[str, Any]:
        kind = "mcp_approval_response"
        return {"type": kind, "approval_request_id": request_id, "approve": True}

    told = [
        without(await create(served, BOB, tools=tools, input=[decision(each)]), each)
        for each in (asked, "mcpr_0000000000000000")
    ]
    assert told[0] == told[1] and told[0][0] == 400
    status, second = await create(
        served, ANN, tools=tools, input=[decision(asked)], previous_response_id=first["id"]
    )
    assert (status, [each["type"] for each in second["output"]]) == (200, ["mcp_call", "message"])
    assert (await people.get(asked.removeprefix("mcpr_"))).who == "ann"
    await people.aclose()


async def test_a_websocket_continues_its_keys_responses_only(serve_script: Any) -> None:
    served = await serve_script([say("Fine.")] * 2, api_key=KEYS)
    _, made = await create(served, ANN)
    message = {"type": "response.create", **ASKING, "previous_response_id": made["id"]}
    last = {}
    for name, who in (("ann", ANN), ("bob", BOB)):
        async with served.http.ws_connect("/v1/responses", headers=who) as socket:
            await socket.send_json(message)
            event = await socket.receive_json()
            while event["type"] not in ("error", "response.completed"):
                event = await socket.receive_json()
            last[name] = event
    assert last["ann"]["type"] == "response.completed"
    assert (last["bob"]["status"], last["bob"]["error"]["code"]) == (
        400,
        "previous_response_not_found",
    )
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await served.http.ws_connect("/v1/realtime", headers={})


async def test_the_same_idempotency_key_of_another_key_is_another_run(serve_script: Any) -> None:
    from caesura.runtime.journal.store import SqliteJournal

    waits, ran = asyncio.Event(), []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(None)
        await waits.wait()
        return "paid"

    script = [calls(call("pay"), text="I pay.")] * 2 + [say("Paid.")] * 2
    engine = ScriptedEngine(script, model=MODEL)
    served = await serve_script(engine, [pay], api_key=KEYS, journal=SqliteJournal(None))
    body = served.body(server_tools=["pay"])

    async def chat(who: Mapping[str, str]) -> Answer:
        headers = {**who, "Idempotency-Key": "k"}
        return await ask(served, headers, "POST", "/v1/chat/completions", body)

    asking = [asyncio.create_task(chat(who)) for who in (ANN, BOB)]
    await until(lambda: len(ran) == 2)
    waits.set()
    answers = await asyncio.gather(*asking)
    assert [status for status, _ in answers] == [200, 200]
    assert len({answer["id"] for _, answer in answers}) == 2


@pytest.fixture
async def waiting(serve_script: Any, double: Any) -> Any:
    """A server on which a call of Ann's waits for an approval; its item, and Ann's answer."""
    people = People()
    script = [call("double", number=4), say("8.")]
    tools = [with_approval(double, people)]
    served = await serve_script(script, tools, api_key=KEYS, people=people)
    body = served.body(server_tools=["double"])
    asking = asyncio.create_task(ask(served, ANN, "POST", "/v1/chat/completions", body))
    await until(lambda: people.waited_for)
    yield served, people.waited_for[0].id, asking
    asking.cancel()
    await people.aclose()


async def test_a_client_sees_its_own_questions_and_a_viewer_everybodys(waiting: Any) -> None:
    served, item, _ = waiting
    for who, sees in ((ANN, True), (BOB, False), (VIC, True), (AMY, True), (ADA, True)):
        status, listed = await ask(served, who, "GET", "/v1/pending")
        assert status == 200
        assert [(each["id"], each["key"]) for each in listed["data"]] == [(item, "ann")] * sees
        assert (await ask(served, who, "GET", f"/v1/pending/{item}"))[0] == (200 if sees else 404)
    for method, body in (("GET", None), ("POST", {"approve": True}), ("POST", {"answer": "x"})):
        known = await ask(served, BOB, method, f"/v1/pending/{item}", body)
        unknown = await ask(served, BOB, method, "/v1/pending/0000000000000000", body)
        assert known[0] == 404
        assert without(known, item) == without(unknown, "0000000000000000")


async def test_who_may_decide_about_anothers_call(waiting: Any) -> None:
    served, item, asking = waiting
    said = {"approve": True, "who": "the boss"}
    path = f"/v1/pending/{item}"
    assert (await ask(served, BOB, "POST", path, said))[0] == 404
    status, refused = await ask(served, VIC, "POST", path, said)
    assert (status, refused["error"]["code"]) == (403, "role_needed")
    assert "the role approve" in refused["error"]["message"]
    assert not asking.done()
    status, settled = await ask(served, AMY, "POST", path, said)
    assert (status, settled["who"], settled["approved"]) == (200, "amy", True)
    assert (await asking)[0] == 200


async def test_a_client_decides_about_its_own_call_under_its_own_name(waiting: Any) -> None:
    served, item, asking = waiting
    said = {"approve": True, "who": "the boss"}
    status, settled = await ask(served, ANN, "POST", f"/v1/pending/{item}", said)
    assert (status, settled["who"]) == (200, "ann")
    assert (await asking)[0] == 200


async def test_events_tell_a_client_of_its_own_questions_only(waiting: Any) -> None:
    served, item, asking = waiting

    async def heard(who: Mapping[str, str], count: int) -> list[str]:
        found: list[str] = []
        async with served.http.get("/v1/pending/events", headers=who) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    found.append(line.decode())
                    if len(found) == count:
                        return found
        return found

    bob = asyncio.create_task(heard(BOB, 99))
    [first] = await heard(VIC, 1)
    assert item in first and '"key":"ann"' in first.replace(" ", "")
    await ask(served, ANN, "POST", f"/v1/pending/{item}", {"approve": True})
    assert (await asking)[0] == 200
    await served.app.leave()  # ends the streams
    assert await bob == []


async def test_a_question_in_the_same_words_is_another_keys_own(serve_script: Any) -> None:
    """Without `user` and `Idempotency-Key` clients are told apart by their keys alone."""
    people = People()
    asks = [call("ask_user", question="Which city?"), say("Done.")]
    engine = ScriptedEngine(sessions=[asks, asks, asks], model=MODEL)
    served = await serve_script(engine, [make_ask_user(people)], api_key=KEYS, people=people)
    body = served.body(server_tools=["ask_user"])
    asking = [
        asyncio.create_task(ask(served, who, "POST", "/v1/chat/completions", body))
        for who in (ANN, ANN, BOB)
    ]
    await until(lambda: len(served.engine.sessions) == 3 and len(people.waited_for) == 2)
    for who, city in ((ANN, "Oslo"), (BOB, "Rome")):
        [item] = (await ask(served, who, "GET", "/v1/pending"))[1]["data"]
        await ask(served, who, "POST", f"/v1/pending/{item['id']}", {"answer": city})
    answers = [answer for _, answer in await asyncio.gather(*asking)]
    cities = [each["caesura"]["calls"][0]["content"] for each in answers]
    assert cities == ["Oslo", "Oslo", "Rome"]
    await people.aclose()


async def test_a_file_is_its_makers_and_a_viewers(serve_script: Any, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")

    @tool
    def draw(text: str) -> Output:
        """Draw."""
        artifact = store.put(text.encode(), "txt")
        return Output(f"Saved as {artifact.url}.", (artifact,))

    sessions = [[call("draw", text=each), say("Here.")] for each in ("a", "a", "b")]
    engine = ScriptedEngine(sessions=sessions, model=MODEL)
    served = await serve_script(engine, [draw], api_key=KEYS, artifacts=store)
    urls = []
    for who in (ANN, BOB, BOB):
        body = served.body(server_tools=["draw"])
        _, answer = await ask(served, who, "POST", "/v1/chat/completions", body)
        urls.append(answer["caesura"]["calls"][0]["artifacts"][0]["url"])
    both, again, bobs = urls
    assert both == again, "the same bytes are one file"
    nobodys = store.put(b"made elsewhere", "txt").url
    sees = {both: (ANN, BOB, VIC, ADA), bobs: (BOB, VIC, ADA), nobodys: (VIC, ADA)}
    for url, keys in sees.items():
        for who in (ANN, BOB, VIC, ADA):
            status, told = await ask(served, who, "GET", url)
            assert status == (200 if who in keys else 404), (url, who)
            if status == 404:
                unknown = await ask(served, who, "GET", f"/artifacts/{'0' * 24}.txt")
                assert (status, told) == unknown


async def test_encrypted_reasoning_is_read_with_the_same_key_alone(serve_script: Any) -> None:
    script = [think("It is a secret.", "One."), say("Two."), say("Three."), say("Four.")]
    first = await serve_script([script[0]], api_key=KEYS)
    second = await serve_script(script[1:], api_key=KEYS)
    wants = {"store": False, "include": ["reasoning.encrypted_content"]}
    _, body = await create(first, ANN, **wants)
    thought, said = body["output"]
    token = thought["encrypted_content"]
    assert "secret" not in token and "It is" not in base64.b64decode(token, b"-_").decode("latin-1")
    # As the AI SDK sends it: nothing but the summary and the encrypted text.
    sent = {"type": "reasoning", "id": thought["id"], "summary": [], "encrypted_content": token}
    changed = sent | {"encrypted_content": token[:-6] + "AAAA" + token[-2:]}
    question = {"role": "user", "content": "And?"}

    async def told(who: Mapping[str, str], item: Any) -> tuple[Any, Any]:
        status, body = await create(second, who, input=[question, item, said, question], **wants)
        assert status == 200, body
        answer = second.engine.sessions[-1].turns[0][1]
        return answer.get("reasoning"), body.get("caesura")

    left = {"left_out": ["reasoning that was not encrypted for this key"]}
    assert await told(ANN, sent) == ("It is a secret.", None)
    assert await told(BOB, sent) == (None, left)
    assert await told(ANN, changed) == (None, left)
