"""What coding agents send by default: tools that are not here, free-form tools, their history."""

import json
import logging
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.api import notes
from caesura.runtime.server.api.chat_request import records_of
from caesura.runtime.server.api.custom import InputReader, input_of
from caesura.runtime.server.api.messages_request import parse as parse_messages
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.messages import messages_of
from caesura.runtime.server.responses.output import events_again
from caesura.runtime.server.responses.plan import History, make_plan
from caesura.runtime.server.responses.schema import parse
from caesura.runtime.testing import ScriptedEngine, call, calls, say
from caesura.scheduler.messages import InputGrammar
from caesura.tools.registry import Registry
from tests.kit.server import MODEL
from tests.runtime.server.responses.asking import TOOL, events, parsed, post
from tests.scheduler.real_templates import renderer_of

PATCH = "*** Begin Patch\n*** Update File: a.py\n-x = \"1\"\n+x = '\\2' 😀\n*** End Patch\n"
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'}
APPLY: dict[str, Any] = {"type": "custom", "name": "apply_patch", "description": "Change files."}
SPAWN: dict[str, Any] = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [TOOL | {"name": "spawn"}, APPLY | {"name": "note"}],
}
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search", "external_web_access": False},
    {"type": "web_search_preview_2025_03_11"},
    {"type": "image_generation", "output_format": "png"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "mac"},
    {"type": "tool_search"},
    {"type": "local_shell"},
    {"type": "shell"},
]


def text(role: str, *texts: str) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": each} for each in texts]
    return {"type": "message", "role": role, "content": parts}


CODEX: dict[str, Any] = {
    "model": MODEL,
    "input": [
        text("developer", "You are Codex.", "Sandboxed to the workspace."),
        text("developer", "# AGENTS.md\nRun the tests."),
        text("user", "<environment_context>cwd: /work</environment_context>"),
        text("user", "Mend the test."),
    ],
    "tools": [TOOL | {"name": "exec_command"}, SPAWN, HOSTED[0], APPLY | {"format": GRAMMAR}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0198",
    "client_metadata": {"originator": "codex_cli_rs"},
}
"""Codex's first request with its defaults and a model of its catalogue, shortened."""
CLAUDE: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 32_000,
    "system": [{"type": "text", "text": "You are Claude Code.", "cache_control": {}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Mend the test."}]},
        {"role": "system", "content": "The skills are: none."},
    ],
    "tools": [{"name": "Read", "description": "Read.", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "user_1"},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stream": True,
}
"""Claude Code's first request, shortened."""


async def test_codex_first_request_is_answered(serve_script: Any, checked: Any) -> None:
    served = await serve_script([calls(call("apply_patch", input=PATCH), text="I mend it. ")])
    async with served.http.post("/v1/responses", json=CODEX) as response:
        assert response.status == 200, await response.text()
        found = parsed(await response.text())
    checked(found)
    (session,) = served.engine.sessions
    names = [tool["function"]["name"] for tool in session.spec.tools]
    assert names == ["exec_command", "agents__spawn", "agents__note", "apply_patch"]
    shown = session.spec.tools[-1]["function"]
    assert GRAMMAR["definition"] in shown["description"]
    assert shown["parameters"]["required"] == ["input"]
    final = found[-1]["response"]
    assert [(each["type"], each.get("input")) for each in final["output"]] == [
        ("message", None),
        ("custom_tool_call", PATCH),
    ]
    assert final["caesura"]["left_out"] == ["tool web_search"]
    given = InputGrammar("lark", GRAMMAR["definition"])
    assert session.samplings[0].calls.inputs == {"apply_patch": given}


class Unable(ScriptedEngine):
    """An engine whose format of calls has no place for grammars."""

    def check_input(self, grammar: InputGrammar) -> None:
        raise UsageError("no grammar")


async def test_a_grammar_that_is_not_enforced_is_noted(serve_script: Any) -> None:
    notes._said.clear()
    served = await serve_script(Unable([say("Hi.")], model=MODEL))
    status, body = await post(served, tools=[APPLY | {"format": GRAMMAR}])
    assert status == 200, body
    assert body["caesura"]["left_out"] == ["grammar of apply_patch: no grammar"]
    assert body["tools"][0]["format"] == GRAMMAR
    assert served.engine.sessions[0].samplings[0].calls is None
    for wrong in ({"syntax": "ebnf", "definition": "x"}, {"syntax": "lark"}, {}):
        status, body = await post(served, tools=[APPLY | {"format": {"type": "grammar"} | wrong}])
        assert (status, body["error"]["param"].partition(".")[0]) == (400, "tools[0]")


async def test_claude_codes_first_request_is_answered(serve_script: Any) -> None:
    served = await serve_script([say("Done.")])
    async with served.http.post("/v1/messages?beta=true", json=CLAUDE) as response:
        assert response.status == 200, await response.text()


@pytest.mark.parametrize("template", ["qwen3", "qwen3_5_think", "gptoss", "mistral_small_3_2"])
def test_both_first_requests_are_rendered_whole(template: str) -> None:
    request, items = parse(json.dumps(CODEX))
    engine = ScriptedEngine(model=MODEL)
    plan = make_plan(request, items, History(), engine, Registry(), Limits(), None).run
    _, chat = parse_messages(json.dumps(CLAUDE).encode())
    tools = [tool.spec() for tool in chat.tools]
    tokenizer, renderer = renderer_of(template)
    whole = tokenizer.decode(renderer.prompt(plan.messages, plan.spec.tools, plan.spec.template))
    for said in ("You are Codex.", "Sandboxed", "Run the tests.", "cwd: /work", "Mend the test."):
        assert whole.count(said) == 1
    assert "apply_patch" in whole
    assert "web_search" not in whole
    whole = tokenizer.decode(renderer.prompt(records_of(chat.messages), tools, chat.template()))
    for said in ("You are Claude Code.", "Mend the test.", "The skills are: none."):
        assert whole.count(said) == 1


@pytest.mark.parametrize("hosted", HOSTED, ids=lambda tool: tool["type"])
async def test_a_hosted_tool_is_left_out_with_a_note(
    serve_script: Any, hosted: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    notes._said.clear()
    served = await serve_script([say("."), say(".")])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            status, body = await post(served, tools=[TOOL, hosted])
            assert status == 200, body
    kind = hosted["type"].split("_preview")[0]
    assert body["caesura"]["left_out"] == [f"tool {kind}"]
    assert [tool["type"] for tool in body["tools"]] == ["function"]
    told = [each for each in caplog.messages if f"the tool {kind}," in each]
    assert len(told) == 1
    (spec,) = served.engine.sessions[0].spec.tools
    assert spec["function"]["name"] == "weather"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "image_generation"}]},
    ],
)
async def test_a_choice_of_a_hosted_tool_is_refused(serve_script: Any, choice: Any) -> None:
    served = await serve_script([])
    status, body = await post(served, tools=[TOOL, *HOSTED], tool_choice=choice)
    assert (status, body["error"]["param"]) == (400, "tool_choice")
    assert "not here" in body["error"]["message"]


async def test_the_input_of_a_custom_tool_streams(serve_script: Any, checked: Any) -> None:
    served = await serve_script([call("apply_patch", input=PATCH)])
    choice = {"type": "custom", "name": "apply_patch"}
    found = await events(served, tools=[TOOL, APPLY], tool_choice=choice)
    checked(found)
    kinds = [event["type"] for event in found if "custom" in event["type"]]
    assert kinds[0] == "response.custom_tool_call_input.delta"
    assert kinds[-1] == "response.custom_tool_call_input.done"
    (item,) = found[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert item["id"].startswith("ctc_")
    assert found[-1]["response"]["tools"][1] == APPLY | {"format": {"type": "text"}}
    (spec,) = served.engine.sessions[0].spec.tools
    assert spec["function"]["name"] == "apply_patch"
    checked(events_again(found[-1]["response"]))


async def test_openais_client_reads_a_custom_call(serve_script: Any) -> None:
    served = await serve_script([call("agents__note", input=PATCH), say("Noted.")])
    client = served.openai.responses
    first = await client.create(model=MODEL, input="Note it.", tools=[SPAWN])
    (item,) = first.output
    assert (item.type, item.namespace, item.name) == ("custom_tool_call", "agents", "note")
    assert item.input == PATCH
    output = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "ok"}
    asked = {"role": "user", "content": "Note it."}
    second = await client.create(
        model=MODEL, input=[asked, item.to_dict(), output], tools=[SPAWN], store=False
    )
    assert second.output_text == "Noted."
    told = served.engine.sessions[1].turns[0]
    (made,) = told[1]["tool_calls"]
    assert made["function"]["name"] == "agents__note"
    assert json.loads(made["function"]["arguments"]) == {"input": PATCH}
    assert (told[2]["role"], told[2]["content"]) == ("tool", "ok")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_input_is_read_while_it_is_written(step: int, ascii_only: bool) -> None:
    written = json.dumps({"input": PATCH}, ensure_ascii=ascii_only)
    reader = InputReader()
    pieces = [reader.push(written[at : at + step]) for at in range(0, len(written), step)]
    assert "".join(pieces) == PATCH == input_of(written)
    assert reader.push("more") == ""


@pytest.mark.parametrize("written", ['{"patch": "x"}', "no JSON", '{"input": 7}', "[1]"])
def test_arguments_without_an_input_are_the_input(written: str) -> None:
    assert InputReader().push(written) == ""
    assert input_of(written) == written


HISTORY: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}},
    {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"},
]


async def test_items_of_hosted_tools_are_kept_and_not_shown(serve_script: Any) -> None:
    served = await serve_script([say("Hi.")])
    asked = {"role": "user", "content": "Hello"}
    status, body = await post(served, input=[asked, *HISTORY, asked])
    assert status == 200, body
    assert [each["role"] for each in served.engine.sessions[0].turns[0]] == ["user", "user"]
    assert body["caesura"]["left_out"] == [f"item {each['type']}" for each in HISTORY]
    async with served.http.get(f"/v1/responses/{body['id']}/input_items?order=asc") as response:
        kept = (await response.json())["data"]
    assert [each["type"] for each in kept[1:-1]] == [each["type"] for each in HISTORY]
    assert kept[1]["action"] == {"type": "search"}


def test_calls_of_tools_that_clients_run_are_calls() -> None:
    ls = {"type": "exec", "command": ["ls"]}
    made = messages_of(
        items_of(
            [
                {"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": ls},
                {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
                {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}},
                {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "a.py"}]},
                {"type": "local_shell_call", "id": "c3", "action": ls},
                {"type": "local_shell_call_output", "id": "c3", "output": "b.py"},
            ]
        )
    )
    assert [message["role"] for message in made] == ["assistant", "tool"] * 3
    functions = [message["tool_calls"][0]["function"] for message in made[::2]]
    assert [each["name"] for each in functions] == ["local_shell", "shell", "local_shell"]
    assert json.loads(functions[0]["arguments"]) == ls
    assert [message["content"] for message in made[1::2]] == [
        "a.py",
        '[{"stdout": "a.py"}]',
        "b.py",
    ]
