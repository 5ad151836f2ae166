"""What a request may ask of the output: calls, formats, probabilities, template variables."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from caesura.runtime.testing import call, say
from caesura.scheduler.messages import CallRule, TextFormat
from tests.kit.server import MODEL

MCP: Any = {"type": "mcp", "server_label": "caesura", "allowed_tools": ["double"]}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}} | fields


async def post(served: Any, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": MODEL, "input": "Hello"} | fields
    async with served.http.post("/v1/responses", json=body) as response:
        return response.status, await response.json()


async def test_a_schema_is_given_to_the_engine_and_parsed(serve_script: Any) -> None:
    class Weather(BaseModel):
        city: str

    served = await serve_script([say('{"city": "Oslo"}')])
    parsed = await served.openai.responses.parse(model=MODEL, input="x", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Oslo")
    constraint = served.engine.sessions[0].samplings[0].text
    assert constraint is not None and constraint.kind == "json_schema"
    assert constraint.value["properties"]["city"]["type"] == "string"
    assert parsed.text.format.name == "Weather"


async def test_json_and_vllms_own_constraints(serve_script: Any) -> None:
    served = await serve_script([say("{}"), say("a")])
    await post(served, text={"format": {"type": "json_object"}})
    await post(served, structured_outputs={"choice": ["a", "b"]})
    given = [session.samplings[0].text for session in served.engine.sessions]
    assert given == [TextFormat("json_object"), TextFormat("choice", ("a", "b"))]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"tool_choice": "required"}, CallRule(required=True)),
        ({"tool_choice": {"type": "function", "name": "a"}}, CallRule(required=True)),
        ({"parallel_tool_calls": False}, CallRule(single=True)),
        ({"tools": [tool("a", strict=True), tool("b")]}, CallRule(strict=frozenset("a"))),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "a"}],
                }
            },
            CallRule(required=True, names=("a",)),
        ),
        ({"tool_choice": "auto"}, None),
    ],
)
async def test_rules_of_calls(serve_script: Any, fields: Any, rule: CallRule | None) -> None:
    served = await serve_script([call("a")])
    status, body = await post(served, **({"tools": [tool("a"), tool("b")]} | fields))
    assert status == 200, body
    assert served.engine.sessions[0].samplings[0].calls == rule


async def test_allowed_tools_are_chosen_among_those_that_are_shown(serve_script: Any) -> None:
    served = await serve_script([call("a"), call("a")])
    allowed = {"type": "allowed_tools", "tools": [{"type": "function", "name": "a"}]}
    named = {"type": "function", "name": "a"}
    for choice in (allowed, named):
        await post(served, tools=[tool("a"), tool("b")], tool_choice=choice)
    shown = [len(session.spec.tools) for session in served.engine.sessions]
    assert shown == [2, 1]


async def test_a_forced_server_tool_is_called_once(serve_script: Any, double: Any) -> None:
    served = await serve_script([call("double", number=4), say("8.")], [double])
    choice = {"type": "mcp", "server_label": "caesura", "name": "double"}
    _, body = await post(served, tools=[MCP], tool_choice=choice)
    rules = [sampling.calls for sampling in served.engine.sessions[0].samplings]
    assert [rule is not None and rule.required for rule in rules] == [True, False]
    assert body["output"][-1]["type"] == "message"


async def test_probabilities_are_told_if_they_are_included(
    serve_script: Any, specification: Any
) -> None:
    served = await serve_script([say("Hello there."), say("Hello.")])
    include = ["message.output_text.logprobs"]
    _, body = await post(served, include=include, top_logprobs=1)
    specification.check(body, "ResponseResource")
    (part,) = body["output"][0]["content"]
    assert "".join(each["token"] for each in part["logprobs"]) == "Hello there."
    assert len(part["logprobs"][0]["top_logprobs"]) == 1
    _, body = await post(served)
    assert body["output"][0]["content"][0]["logprobs"] == []


async def test_template_variables_and_vllms_fields_reach_the_session(serve_script: Any) -> None:
    served = await serve_script([say(".")])
    await post(
        served,
        reasoning={"effort": "none"},
        chat_template_kwargs={"style": "short"},
        cache_salt="ours",
        priority=3,
    )
    session = served.engine.sessions[0]
    assert session.spec.template == {
        "reasoning_effort": "none",
        "enable_thinking": False,
        "style": "short",
    }
    assert (session.spec.cache_salt, session.spec.priority) == ("ours", 3)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 7}}}},
            "text.format.schema",
        ),
        ({"text": {"format": {"type": "regex"}}}, "text.format.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        (
            {"structured_outputs": {"regex": "a"}, "text": {"format": {"type": "text"}}},
            "structured_outputs",
        ),
    ],
)
async def test_wrong_constraints_are_refused(
    serve_script: Any, fields: dict[str, Any], param: str
) -> None:
    served = await serve_script([])
    status, body = await post(served, **fields)
    assert (status, body["error"]["param"]) == (400, param), json.dumps(body)


@pytest.mark.parametrize("priority", [10**30, -(2**31) - 1])
async def test_a_priority_that_cannot_be_sent_to_an_engine_is_refused(
    serve_script: Any, priority: int
) -> None:
    served = await serve_script([])
    status, body = await post(served, priority=priority)
    assert (status, body["error"]["param"]) == (400, "priority")


async def test_an_empty_id_names_no_response(serve_script: Any) -> None:
    served = await serve_script([])
    status, body = await post(served, previous_response_id="")
    assert (status, body["error"]["code"]) == (400, "previous_response_not_found")
