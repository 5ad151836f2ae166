"""`/v1/pending`: what waits for a person, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening as serving
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.people import People, PeopleSettings, make_ask_user, with_approval
from caesura.tools.registry import Registry
from caesura.tools.tool import Tool, tool
from tests.kit.server import MODEL
from tests.kit.waiting import until

ASKS = [call("ask_user", question="Which city?", options=["Oslo", "Rome"]), say("Done.")]


def twice() -> ScriptedEngine:
    return ScriptedEngine(sessions=[ASKS, ASKS], model=MODEL)


class Office:
    """A served script whose tools ask people, and a client."""

    def __init__(self, served: Any, people: People) -> None:
        self.served = served
        self.people = people

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.served.http.get(path) as response:
            return response.status, await response.json()

    async def post(self, item_id: str, **body: Any) -> tuple[int, Any]:
        async with self.served.http.post(f"/v1/pending/{item_id}", json=body) as response:
            return response.status, await response.json()

    def chat(self, *tools: str, **fields: Any) -> asyncio.Task[tuple[int, dict[str, Any]]]:
        return asyncio.create_task(self.served.chat(server_tools=list(tools), **fields))

    async def opened(self, count: int = 1) -> dict[str, Any]:
        await until(lambda: len(self.people.waited_for) >= count)
        return self.people.waited_for[-1].public()


def pay_tool(paid: list[int]) -> Tool:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return pay


@pytest.fixture
async def office(
    serve_script: Callable[..., Any], tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    opened: list[People] = []

    async def start(
        script: Any,
        *more: Tool,
        path: Path | None = None,
        settings: PeopleSettings | None = None,
        **options: Any,
    ) -> Office:
        people = People(path or tmp_path / "people.sqlite", settings)
        opened.append(people)
        tools = [make_ask_user(people), *(with_approval(each, people) for each in more)]
        return Office(await serve_script(script, tools, people=people, **options), people)

    yield start
    for people in opened:
        await people.aclose()


async def test_a_question_is_listed_shown_and_answered(office: Any) -> None:
    here = await office(ASKS)
    chat = here.chat("ask_user")
    await here.opened()
    status, listed = await here.get("/v1/pending")
    (item,) = listed["data"]
    assert (status, listed["object"]) == (200, "list")
    assert "warning" not in listed
    assert (item["question"], item["options"]) == ("Which city?", ["Oslo", "Rome"])
    assert item["state"] == "open"
    assert item["session"].startswith("chatcmpl-")
    assert await here.get(f"/v1/pending/{item['id']}") == (200, item)
    status, answered = await here.post(item["id"], answer="Oslo", who="Eva")
    assert (status, answered["state"], answered["who"]) == (200, "answered", "Eva")
    status, body = await chat
    assert body["choices"][0]["message"]["content"] == "Done."
    assert [each["content"] for each in body["caesura"]["calls"]] == ["Oslo"]
    assert (await here.get("/v1/pending"))[1]["data"] == []
    assert [each["id"] for each in (await here.get("/v1/pending?state=all"))[1]["data"]] == [
        item["id"]
    ]
    assert (await here.get("/v1/pending?state=expired"))[1]["data"] == []


async def test_a_call_is_approved_or_denied(office: Any) -> None:
    paid: list[int] = []
    script = [call("pay", amount=5), call("pay", amount=900), say("Done.")]
    here = await office(script, pay_tool(paid))
    chat = here.chat("pay")
    item = await here.opened()
    assert (item["kind"], item["arguments"]) == ("approval", '{"amount": 5}')
    assert (await here.post(item["id"], approve=True))[0] == 200
    for _ in range(30_000):
        found = (await here.get("/v1/pending"))[1]["data"]
        if found and found[0]["id"] != item["id"]:
            break
    assert paid == [5]
    status, denied = await here.post(found[0]["id"], approve=False, reason="too much")
    assert (status, denied["approved"], denied["answer"]) == (200, False, "too much")
    _, body = await chat
    assert [each["content"] for each in body["caesura"]["calls"]] == [
        "paid 5",
        "error: a person denied this call of pay: too much",
    ]
    assert paid == [5]


async def test_the_second_answer_is_a_conflict(office: Any) -> None:
    here = await office(ASKS)
    chat = here.chat("ask_user")
    item = await here.opened()
    ended = await asyncio.gather(*(here.post(item["id"], answer=text) for text in "abcd"))
    assert sorted(status for status, _ in ended) == [200, 409, 409, 409]
    late = next(body for status, body in ended if status == 409)
    assert late["error"]["message"] == "This item is already answered."
    assert late["error"]["code"] == "not_pending"
    (won,) = [body["answer"] for status, body in ended if status == 200]
    assert [each["content"] for each in (await chat)[1]["caesura"]["calls"]] == [won]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{}", "send either answer"),
        ('{"answer": "a", "approve": true}', "send either answer"),
        ('{"approve": "yes"}', "approve"),
        ('{"answer": 5}', "answer"),
        ('{"answer": " "}', "The answer is empty"),
        ('{"approve": true}', "This is a question"),
        ('{"answer": "a", "whom": "b"}', "whom"),
        ("[]", "The body"),
        ("nonsense", "The body"),
        ('{"answer": "%s"}' % ("x" * 5000), "at most 4000 are allowed"),
    ],
)
async def test_what_is_no_answer_is_refused(office: Any, body: str, says: str) -> None:
    here = await office(ASKS)
    chat = here.chat("ask_user")
    item = await here.opened()
    path, json_type = f"/v1/pending/{item['id']}", {"Content-Type": "application/json"}
    async with here.served.http.post(path, data=body, headers=json_type) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"
    await here.post(item["id"], answer="fine")
    assert (await chat)[0] == 200


async def test_what_there_is_not(office: Any) -> None:
    here = await office([])
    for status, body in (await here.get("/v1/pending/none"), await here.post("none", answer="a")):
        assert status == 404
        assert "There is no pending item 'none'" in body["error"]["message"]
    status, body = await here.get("/v1/pending?state=lost")
    assert status == 400
    assert "orphaned" in body["error"]["message"]


async def test_the_api_key_is_asked_for(office: Any) -> None:
    here = await office([], api_key="secret")
    for path in ("/v1/pending", "/v1/pending/events", "/v1/pending/x"):
        assert (await here.get(path))[0] == 401
    assert (await here.post("x", answer="y"))[0] == 401
    here.served.http.headers["Authorization"] = "Bearer secret"
    assert (await here.get("/v1/pending"))[0] == 200


async def test_without_people_there_is_no_such_route(serve_script: Callable[..., Any]) -> None:
    served = await serve_script([])
    async with served.http.get("/v1/pending") as response:
        assert response.status == 404


@asynccontextmanager
async def listening(here: Office) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    async def events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    async with here.served.http.get("/v1/pending/events") as response:
        assert response.content_type == "text/event-stream"
        yield events(response)


async def test_events_tell_what_opens_and_what_becomes_of_it(office: Any) -> None:
    here = await office(twice())
    first = here.chat("ask_user")
    before = await here.opened()
    async with listening(here) as events:
        second = here.chat("ask_user", messages=[{"role": "user", "content": "Another"}])
        after = await here.opened(2)
        await here.post(before["id"], answer="Oslo")
        seen = [await anext(events) for _ in range(3)]
        assert [(each["id"], each["state"]) for each in seen] == [
            (before["id"], "open"),
            (after["id"], "open"),
            (before["id"], "answered"),
        ]
    await here.post(after["id"], answer="Rome")
    await asyncio.gather(first, second)


async def test_events_end_with_the_server(office: Any) -> None:
    here = await office([])
    async with listening(here) as events:
        await here.people.leave()
        assert [each async for each in events] == []


async def test_a_stream_says_what_it_waits_for(office: Any) -> None:
    here = await office(ASKS)
    client, chunks = here.served.openai, []
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Hello"}],
        stream=True,
        extra_body={"server_tools": ["ask_user"]},
    )
    async for chunk in stream:
        chunks.append(chunk)
        pending = (chunk.model_extra or {}).get("caesura", {}).get("pending")
        if pending is not None:
            assert chunk.choices[0].delta.content is None
            assert (pending["question"], pending["session"]) == ("Which city?", chunk.id)
            await here.post(pending["id"], answer="Oslo")
    assert chunks[0].choices[0].delta.role == "assistant"
    waited, ran = [extra for chunk in chunks if (extra := (chunk.model_extra or {}).get("caesura"))]
    assert list(waited) == ["pending"]
    assert [each["content"] for each in ran["calls"]] == ["Oslo"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "Done."
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_streams_tell_of_their_own_questions_only(office: Any) -> None:
    here = await office(twice())
    streams = [
        asyncio.create_task(
            here.served.events(
                server_tools=["ask_user"], messages=[{"role": "user", "content": name}]
            )
        )
        for name in ("one", "two")
    ]
    await here.opened(2)
    for item in here.people.waited_for:
        await here.post(item.id, answer="Oslo")
    sessions = set()
    for events in await asyncio.gather(*streams):
        extras = [
            each["caesura"] for each in events if isinstance(each, dict) and "caesura" in each
        ]
        [told] = [extra["pending"] for extra in extras if "pending" in extra]
        sessions.add(told["session"])
        assert told["session"] == events[0]["id"]
    assert len(sessions) == 2


async def test_a_client_that_leaves_takes_its_question_with_it(office: Any) -> None:
    here = await office(ASKS)
    chat = here.chat("ask_user")
    item = await here.opened()
    chat.cancel()
    await until(lambda: not here.people.waited_for)
    assert (await here.get(f"/v1/pending/{item['id']}"))[1]["state"] == "cancelled"


async def test_a_restarted_server_finds_the_question_and_the_answer(
    office: Any, serve_script: Any
) -> None:
    before = await office(ASKS)
    chat = before.chat("ask_user")
    item = await before.opened()
    await before.served.app.leave()  # as its runner does first when a signal has come
    chat.cancel()
    await until(lambda: not before.people.waited_for)
    await before.people.aclose()

    after = await office(ASKS)
    (orphan,) = (await after.get("/v1/pending"))[1]["data"]
    assert (orphan["id"], orphan["state"]) == (item["id"], "orphaned")
    assert (await after.post(item["id"], answer="Rome"))[0] == 200
    _, body = await after.chat("ask_user")
    assert [each["content"] for each in body["caesura"]["calls"]] == ["Rome"]
    assert after.people.waited_for == ()


EVA = ({"user": "eva"}, {})
KEYED = ({}, {"Idempotency-Key": "f9"})


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (EVA, EVA, True),
        (KEYED, KEYED, True),
        (EVA, ({"user": "tom"}, {}), False),
        (EVA, ({}, {}), False),
        (({}, {}), EVA, False),
        (({}, {}), ({}, {}), False),
        (KEYED, ({}, {"Idempotency-Key": "f8"}), False),
        (KEYED, ({"user": "f9"}, {}), False),
        (({"user": "eva"}, KEYED[1]), EVA, False),
        (EVA, (EVA[0], {"Authorization": "Bearer another"}), False),
        (({"user": ""}, {}), ({"user": ""}, {}), False),
    ],
)
async def test_an_approval_that_outlives_a_server_belongs_to_its_asker(
    office: Any, first: Any, second: Any, same: bool
) -> None:
    paid: list[int] = []
    script = [call("pay", amount=5), say("Done.")]

    def ask(here: Office, asker: Any) -> asyncio.Task[Any]:
        fields, headers = asker
        here.served.http.headers.update(headers)
        return here.chat("pay", **fields)

    before = await office(script, pay_tool(paid))
    chat = ask(before, first)
    item = await before.opened()
    await before.served.app.leave()
    chat.cancel()
    await until(lambda: not before.people.waited_for)
    await before.people.aclose()

    after = await office(script, pay_tool(paid))
    known = first[0].get("user") or first[1]
    assert (await after.post(item["id"], approve=True))[0] == (200 if known else 409)
    chat = ask(after, second)
    if not same:
        asked = await after.opened()
        assert asked["id"] != item["id"]
        await after.post(asked["id"], approve=False)
    await chat
    assert paid == ([5] if same else [])


async def test_a_list_says_that_items_are_kept_in_memory(office: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here = await office([], path=tmp_path / "file" / "people.sqlite")
    assert "memory only" in (await here.get("/v1/pending"))[1]["warning"]


async def test_the_engine_is_told_of_people(office: Any) -> None:
    paid: list[int] = []
    engine = ScriptedEngine([say("Hello.")], model=MODEL)
    here = await office(engine, pay_tool(paid))
    await here.chat("ask_user", "pay")
    pauses = engine.sessions[0].spec.pauses
    assert pauses["ask_user"].person
    assert pauses["ask_user"].seconds == 60.0
    assert pauses["ask_user"].deadline_seconds == 3660.0
    assert pauses["pay"].person
    assert pauses["pay"].deadline_seconds == 3630.0


async def test_listeners_do_not_hold_up_the_end(tmp_path: Path) -> None:
    people = People(tmp_path / "people.sqlite")
    app = create_app(ScriptedEngine([]), Registry(), parts=ServerParts(people=people))
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        port = await stack.enter_async_context(serving(app, shutdown_timeout=3600))
        async with http.get(f"http://127.0.0.1:{port}/v1/pending/events") as response:
            # The server would answer no request for the hour.
            async with asyncio.timeout(60):
                await stack.aclose()
            assert await response.read() == b""
    await people.aclose()


async def test_a_key_with_open_questions_does_not_silence_the_others(office: Any) -> None:
    settings = PeopleSettings(max_items_per_key=1)
    script = ScriptedEngine(sessions=[ASKS, ASKS, ASKS], model=MODEL)
    here = await office(script, settings=settings, api_key=["greedy", "other"])

    async def chat(key: str, user: str) -> dict[str, Any]:
        body = here.served.body(server_tools=["ask_user"], user=user)
        who = {"Authorization": f"Bearer {key}"}
        url = "/v1/chat/completions"
        async with here.served.http.post(url, json=body, headers=who) as response:
            assert response.status == 200
            return dict(await response.json())

    chats = [asyncio.create_task(chat("greedy", "ann"))]
    await here.opened(1)
    (refused,) = (await chat("greedy", "bob"))["caesura"]["calls"]
    assert "too many questions of this API key" in refused["content"]
    chats.append(asyncio.create_task(chat("other", "eve")))
    await here.opened(2)
    for item in here.people.waited_for:
        await here.people.answer(item.id, "Oslo")
    for each in await asyncio.gather(*chats):
        assert [call["content"] for call in each["caesura"]["calls"]] == ["Oslo"]
