"""`custom` tools of chat completions: their input is free text, whole and streamed, and kept."""

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from caesura.runtime.errors import UsageError
from caesura.runtime.server.api import notes
from caesura.runtime.testing import ScriptedEngine, call, calls, malformed, say
from caesura.scheduler.messages import CallRule, InputGrammar
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL, WEATHER, counted

PATCH = "*** Begin Patch\n-x = \"1\"\n+x = '\\2' 😀\n*** End Patch\n"
LARK = {"syntax": "lark", "definition": 'start: "*** Begin Patch"'}
HELLO = {"role": "user", "content": "Hello"}


def tool(name: str = "apply_patch", **fields: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, "description": "Change files."} | fields}


def put_together(events: list[Any]) -> tuple[dict[str, Any], str, int]:
    """The only call that a client makes of a stream, why it ended, and the pieces of its input."""
    made: dict[str, Any] = {}
    reason, pieces = "", 0
    for choice in (each["choices"][0] for each in events[:-1]):
        reason = choice["finish_reason"] or reason
        for delta in choice["delta"].get("tool_calls") or ():
            assert delta["index"] == 0 and "function" not in delta
            custom = delta["custom"]
            if made:
                assert set(delta) == {"index", "custom"} and set(custom) == {"input"}
                made["custom"]["input"] += custom["input"]
                pieces += 1
            else:
                made = {"id": delta["id"], "type": delta["type"], "custom": dict(custom)}
    return made, reason, pieces


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("server_tools", [[], ["double"]])
async def test_a_call_holds_one_text_and_comes_back(
    serve_script: Any, double: Any, streams: bool, server_tools: list[str]
) -> None:
    served = await serve_script([call("apply_patch", input=PATCH), say("Done.")], [double])
    fields: Any = {"tools": [tool(format={"type": "text"}), WEATHER], "server_tools": server_tools}
    if streams:
        made, reason, pieces = put_together(await served.events(**fields))
        assert (pieces > 3) == (not server_tools), "the input streams where no tool runs here"
        message = {"role": "assistant", "content": None, "tool_calls": [made]}
    else:
        _, answer = await served.chat(**fields)
        choice = answer["choices"][0]
        message, reason = choice["message"], choice["finish_reason"]
        [made] = message["tool_calls"]
    assert (made["type"], reason) == ("custom", "tool_calls")
    assert made["custom"] == {"name": "apply_patch", "input": PATCH}
    result = {"role": "tool", "tool_call_id": made["id"], "content": "Changed."}
    status, answer = await served.chat(messages=[HELLO, message, result], **fields)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Done.")
    assert await counted(served) == {("spliced", "unchanged"): 1}
    shown = served.engine.sessions[-1].spec.tools[0]["function"]
    assert shown["parameters"]["required"] == ["input"]
    told = served.engine.sessions[-1].turns[0]
    assert json.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {"input": PATCH}
    assert told[2]["name"] == "apply_patch"


@pytest.mark.parametrize("arguments", ['{"input": "ls', "ls -l", '{"input": 5}', "{}"])
async def test_what_is_no_text_is_shown_as_it_was_written(
    serve_script: Any, arguments: str
) -> None:
    served = await serve_script([malformed(arguments, "not JSON", name="run")] * 2)
    _, answer = await served.chat(tools=[tool("run")])
    whole = answer["choices"][0]["message"]
    assert (whole["tool_calls"][0]["custom"]["input"] or "") in (arguments, "ls")


async def test_the_choice_of_a_custom_tool(serve_script: Any) -> None:
    served = await serve_script([call("run", input="ls")] * 4)
    choice = {"type": "custom", "custom": {"name": "run"}}
    tools = [tool("run"), tool("other"), WEATHER]
    _, answer = await served.chat(tools=tools, tool_choice=choice)
    spec, [sampling] = served.engine.sessions[0].spec, served.engine.sessions[0].samplings
    assert [each["function"]["name"] for each in spec.tools] == ["run"]
    assert sampling.calls == CallRule(required=True)
    assert answer["choices"][0]["finish_reason"] == "stop"
    weather = {"type": "function", "function": {"name": "weather"}}
    allowed = {"mode": "auto", "tools": [choice, weather]}
    chosen = {"type": "allowed_tools", "allowed_tools": allowed}
    await served.chat(tools=tools, tool_choice=chosen)
    [sampling] = served.engine.sessions[1].samplings
    assert sampling.calls == CallRule(names=("run", "weather"), strict=frozenset({"weather"}))
    status, answer = await served.chat(tools=[WEATHER], tool_choice=choice)
    assert (status, answer["error"]["param"]) == (400, "tool_choice")
    assert "'run'" in answer["error"]["message"]


async def test_a_grammar_is_told_and_enforced(serve_script: Any) -> None:
    served = await serve_script([call("apply_patch", input="*** Begin Patch")])
    grammar = {"type": "grammar", "grammar": LARK}
    _, answer = await served.chat(tools=[tool(format=grammar), tool("run")])
    session = served.engine.sessions[0]
    assert LARK["definition"] in session.spec.tools[0]["function"]["description"]
    inputs = {"apply_patch": InputGrammar("lark", LARK["definition"])}
    assert session.samplings[0].calls == CallRule(inputs=inputs)
    assert "caesura" not in answer


class WithoutGrammars(ScriptedEngine):
    """An engine whose format of calls has no place for a grammar."""

    def check_input(self, grammar: InputGrammar) -> None:
        raise UsageError("arguments are no JSON here")


async def test_a_grammar_that_is_not_enforced_is_noted(serve_script: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(notes, "_said", set())
    engine = WithoutGrammars([calls(call("apply_patch", input="x"))] * 2, model=MODEL)
    served = await serve_script(engine)
    asked = {"tools": [tool(format={"type": "grammar", "grammar": LARK})]}
    told = {"left_out": ["grammar of apply_patch: arguments are no JSON here"]}
    _, answer = await served.chat(**asked)
    assert answer["caesura"] == told
    *_, last, _ = await served.events(**asked)
    assert last["caesura"] == told
    assert engine.sessions[0].samplings[0].calls is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom.name"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [tool(format={"type": "grammar"})]}, "tools[0].custom.format"),
        ({"tools": [tool(), tool()]}, "tools[1].custom.name"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [
                {"id": "c", "type": "custom", "custom": {"name": "run"}}]}]},
            "messages[0].tool_calls[0]",
        ),
    ],
)  # fmt: skip
async def test_wrong_custom_tools(serve_script: Any, fields: Any, param: str) -> None:
    served = await serve_script([])
    status, answer = await served.chat(**fields)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_vllms_server_is_not_asked_for_what_it_refuses(serve_script: Any) -> None:
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"behind": True})(scope, receive, send)

    served = await serve_script([say("Fine.")] * 3, vllm=VllmServer(behind, None))
    made = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    history = [
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c", "content": "a.py"},
    ]
    for fields in ({"tools": [tool("run")]}, {"messages": history}):
        _, answer = await served.chat(**fields)
        assert answer["choices"][0]["message"]["content"] == "Fine."
    assert (await served.chat(tools=[WEATHER]))[1] == {"behind": True}
