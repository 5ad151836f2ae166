"""Approvals of calls through a response and its follow-up, while the run waits."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.run.limits import Limits
from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.keys.rules import Role
from caesura.runtime.server.responses import runs
from caesura.runtime.testing import call, calls, say
from caesura.tools.people import People, with_approval
from tests.kit.server import MODEL
from tests.kit.waiting import until

MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["double"]}


async def post(served: Any, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "tools": [MCP]} | fields
    async with served.http.post("/v1/responses", json=body) as response:
        return response.status, await response.json()


def kinds(body: dict[str, Any]) -> list[str]:
    return [item["type"] for item in body["output"]]


def decision(body: dict[str, Any], approve: bool = True, number: int = 0) -> dict[str, Any]:
    asked = [item for item in body["output"] if item["type"] == "mcp_approval_request"]
    answer = {"type": "mcp_approval_response", "approval_request_id": asked[number]["id"]}
    return answer | {"approve": approve}


@pytest.fixture
async def asking(serve_script: Any, double: Any) -> Any:
    """A server whose tool `double` needs an approval."""
    people = People()

    async def start(script: Any) -> Any:
        return await serve_script(script, [with_approval(double, people)], people=people)

    yield start
    await people.aclose()


async def test_a_response_ends_at_an_approval_and_the_paused_run_goes_on(asking: Any) -> None:
    served = await asking([calls(call("double", number=4), text="I double."), say("8.")])
    _, first = await post(served, input="Double 4.")
    assert first["status"] == "completed"
    assert kinds(first) == ["mcp_list_tools", "message", "mcp_approval_request"]
    assert (await served.metrics()).count("caesura_requests_in_flight 0.0")
    assert served.engine.open_sessions == 1, "the request waits, paused, in the engine"
    _, second = await post(served, input=[decision(first)], previous_response_id=first["id"])
    assert kinds(second) == ["mcp_call", "message"]
    made = second["output"][0]
    assert (made["output"], made["approval_request_id"]) == ("8", first["output"][2]["id"])
    assert len(served.engine.sessions) == 1, "nothing was decoded again"
    assert served.engine.open_sessions == 0


async def test_a_request_with_an_approval_counts_for_the_limits_of_its_key(
    serve_script: Any, double: Any
) -> None:
    people = People()
    tool = with_approval(double, people)
    keys = [Key("ann", rpm=1), Key("bob", role=Role.ADMIN)]
    script = [call("double", number=4), say("8.")]
    served = await serve_script(script, [tool], people=people, api_key=keys)
    served.http.headers["Authorization"] = "Bearer ann"
    _, first = await post(served, input="Double 4.")
    given = {"input": [decision(first)], "previous_response_id": first["id"]}
    status, refused = await post(served, **given)
    assert (status, refused["error"]["code"]) == (429, "rate_limit_exceeded")
    served.http.headers["Authorization"] = "Bearer bob"
    status, second = await post(served, **given)
    assert (status, kinds(second)) == (200, ["mcp_call", "message"]), "the approval still waits"
    await people.aclose()


async def test_the_whole_run_is_the_history_of_what_follows(asking: Any) -> None:
    served = await asking([call("double", number=4), say("8."), say("Bye.")])
    _, first = await post(served, input="Double 4.")
    _, second = await post(served, input=[decision(first)], previous_response_id=first["id"])
    await post(served, input="Thanks", previous_response_id=second["id"])
    messages = served.engine.sessions[1].turns[0]
    assert [m["content"] for m in messages] == ["Double 4.", "", "8", "8.", "Thanks"]
    again = [{"role": "user", "content": "Double 4."}, *first["output"], decision(first)]
    again += [*second["output"], {"role": "user", "content": "Thanks"}]
    served.engine.sessions.clear()
    served.engine._scripts[0]._items += ("Bye.",)
    await post(served, input=again)
    assert served.engine.sessions[0].turns[0] == messages


async def test_a_denial_is_told_to_the_model(asking: Any) -> None:
    served = await asking([call("double", number=4), say("Then not.")])
    _, first = await post(served, input="Double 4.")
    answer = decision(first, approve=False) | {"reason": "too large"}
    _, second = await post(served, input=[answer], previous_response_id=first["id"])
    assert kinds(second) == ["message"]
    assert "too large" in served.engine.sessions[0].turns[1][0]["content"]


async def test_without_a_stored_response_the_request_names_the_run(asking: Any) -> None:
    served = await asking([call("double", number=4), say("8.")])
    _, first = await post(served, input="Double 4.", store=False)
    history = [{"role": "user", "content": "Double 4."}, *first["output"], decision(first)]
    _, second = await post(served, input=history, store=False)
    assert kinds(second) == ["mcp_call", "message"]


async def test_each_of_several_calls_needs_its_own_approval(asking: Any) -> None:
    both = calls(call("double", number=1), call("double", number=2))
    served = await asking([both, say("Done.")])
    _, first = await post(served, input="Double both.")
    assert kinds(first) == ["mcp_list_tools", *["mcp_approval_request"] * 2]
    _, second = await post(
        served, input=[decision(first, number=1)], previous_response_id=first["id"]
    )
    assert (kinds(second), second["output"][0]["output"]) == (["mcp_call"], "4")
    _, third = await post(served, input=[decision(first)], previous_response_id=second["id"])
    assert kinds(third) == ["mcp_call", "message"]
    assert third["output"][0]["output"] == "2"


async def test_an_approval_counts_once(asking: Any) -> None:
    served = await asking([call("double", number=4), say("8.")])
    _, first = await post(served, input="Double 4.")
    answer = decision(first)
    await post(served, input=[answer], previous_response_id=first["id"])
    status, body = await post(served, input=[answer], previous_response_id=first["id"])
    assert (status, body["error"]["code"]) == (400, "approval_not_pending")


async def test_an_item_of_pending_is_the_same_approval(asking: Any) -> None:
    """Another person decides; the run still waits until its client asks for the rest."""
    served = await asking([call("double", number=4), say("8.")])
    _, first = await post(served, input="Double 4.")
    async with served.http.get("/v1/pending") as response:
        (item,) = (await response.json())["data"]
    assert first["output"][-1]["id"] == f"mcpr_{item['id']}"
    async with served.http.post(f"/v1/pending/{item['id']}", json={"approve": True}) as response:
        assert response.status == 200
    await asyncio.sleep(0.05)
    assert len(served.engine.sessions[0].turns) == 1
    _, second = await post(served, input=[decision(first)], previous_response_id=first["id"])
    assert kinds(second) == ["mcp_call", "message"]


async def test_the_request_itself_may_want_approvals(serve_script: Any, double: Any) -> None:
    people = People()
    served = await serve_script([call("double", number=4)], [double], people=people)
    _, first = await post(served, input="Double 4.", tools=[MCP | {"require_approval": "always"}])
    assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
    await people.aclose()


async def test_a_hidden_tool_waits_within_its_response(asking: Any) -> None:
    """With `server_tools` the response goes on when a person has approved, as in chat."""
    served = await asking([call("double", number=4), say("8.")])
    request = asyncio.create_task(
        post(served, input="Double 4.", tools=[], server_tools=["double"])
    )

    async def pending() -> Any:
        async with served.http.get("/v1/pending") as response:
            return (await response.json())["data"]

    data = await until(pending)
    async with served.http.post(f"/v1/pending/{data[0]['id']}", json={"approve": True}):
        pass
    _, body = await request
    assert kinds(body) == ["message"]


async def test_a_run_that_reached_its_limit_while_it_waited_is_gone(
    serve_script: Any, double: Any
) -> None:
    people = People()
    tools = [with_approval(double, people)]
    for seconds in (0.3, 3.0, 30.0):
        limits = Limits(max_seconds=seconds)
        served = await serve_script([call("double", number=4)], tools, people=people, limits=limits)
        status, first = await post(served, input="Double 4.")
        if status == 200 and kinds(first)[-1:] == ["mcp_approval_request"]:
            break  # on a busy machine the time may be over before the approval is asked for
    await until(lambda: served.engine.open_sessions == 0)
    status, body = await post(served, input=[decision(first)], previous_response_id=first["id"])
    assert (status, body["error"]["code"]) == (400, "approval_not_pending")
    await people.aclose()


async def test_the_run_that_waits_longest_makes_room(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_PARKED", 1)
    served = await asking([call("double", number=1), call("double", number=2), say("4.")])
    _, first = await post(served, input="Double 1.")
    _, second = await post(served, input="Double 2.")
    await until(lambda: served.engine.open_sessions == 1)
    status, _ = await post(served, input=[decision(first)], previous_response_id=first["id"])
    assert status == 400
    _, last = await post(served, input=[decision(second)], previous_response_id=second["id"])
    assert kinds(last) == ["mcp_call", "message"]


async def test_a_run_that_waits_ends_with_the_server(asking: Any) -> None:
    served = await asking([call("double", number=4)])
    await post(served, input="Double 4.")
    await served.app.close()
    assert served.engine.open_sessions == 0
