"""Why the prompt cache missed, as Anthropic and OpenAI tell it, by the clients' own types."""

import json
from array import array
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.responses import Response

from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.load.diagnosis import MAX_KEPT, Diagnoses, Kept, Miss, Prompt, miss
from caesura.runtime.testing import ScriptedEngine, say
from caesura.scheduler.histories import Histories, History
from caesura.scheduler.messages import SessionSpec
from tests.kit.server import MODEL, Served

TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}}
    for name in ("look", "listen")
]
USER = {"role": "user", "content": "How long is the river? " * 20}
SAID = {"role": "assistant", "content": "Long."}
NEXT = {"role": "user", "content": "And the other?"}
FIRST: dict[str, Any] = {"max_tokens": 9, "system": "Be brief.", "tools": TOOLS, "messages": [USER]}


async def asked(served: Served, previous: str | None, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, **FIRST, **fields, "diagnostics": {"previous_message_id": previous}}
    async with served.http.post("/v1/messages", json=body) as response:
        text = await response.text()
        assert response.status == 200, text
    if not body.get("stream"):
        return dict(json.loads(text))
    begun = text.split("\n\n")[0].partition("data: ")[2]
    return dict(json.loads(begun)["message"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"messages": [USER, SAID, NEXT]}, None),
        ({"messages": [{"role": "user", "content": "Hm?"}, SAID, NEXT]}, "messages_changed"),
        ({"messages": [USER, SAID, NEXT], "system": "Be long."}, "system_changed"),
        ({"messages": [USER, SAID, NEXT], "tools": TOOLS[::-1]}, "tools_changed"),
        ({"messages": [USER, SAID, NEXT], "thinking": {"type": "disabled"}}, "unavailable"),
    ],
)
async def test_the_reason_is_the_first_part_that_differs(
    serve_script: Any, fields: dict[str, Any], kind: str | None, stream: bool
) -> None:
    served = await serve_script(ScriptedEngine([say("Long."), say("Short.")], model=MODEL))
    first = await asked(served, None)
    assert first["diagnostics"] is None
    second = await asked(served, first["id"], **fields, stream=stream)
    told = Message.model_validate(second).diagnostics
    if kind is None:
        assert told is None
        return
    assert told is not None and told.cache_miss_reason is not None
    assert told.cache_miss_reason.type == kind
    if kind.endswith("_changed"):
        used = first["usage"]
        prompt = used["input_tokens"] + (used["cache_read_input_tokens"] or 0)
        missed = second["diagnostics"]["cache_miss_reason"]["cache_missed_input_tokens"]
        assert 0 < missed <= prompt


async def test_a_message_of_another_key_is_not_found(serve_script: Any) -> None:
    script = [say("Long."), say("Long.")]
    served = await serve_script(script, api_key=[Key("one"), Key("two")])
    body = {"model": MODEL, **FIRST, "diagnostics": {"previous_message_id": None}}
    async with served.http.post("/v1/messages", json=body, headers={"x-api-key": "one"}) as got:
        body["diagnostics"] = {"previous_message_id": (await got.json())["id"]}
    async with served.http.post("/v1/messages", json=body, headers={"x-api-key": "two"}) as got:
        told = (await got.json())["diagnostics"]
    assert told == {"cache_miss_reason": {"type": "previous_message_not_found"}}


async def test_nothing_is_told_to_whom_does_not_ask(serve_script: Any) -> None:
    served = await serve_script([say("Long.")])
    async with served.http.post("/v1/messages", json={"model": MODEL, **FIRST}) as response:
        assert "diagnostics" not in await response.json()


LOOKED = {"id": "toolu_1", "name": "look", "type": "tool_use", "input": {"b": 1, "a": 5000.0}}
SPELLED = LOOKED | {"id": "toolu_9", "input": {"a": 5000, "b": 1}}


@pytest.mark.parametrize(
    ("called", "kind"),
    [(LOOKED, None), (SPELLED, None), (LOOKED | {"input": {"a": 5}}, "messages_changed")],
)
async def test_a_call_that_was_spelled_anew_is_no_change(
    serve_script: Any, called: Any, kind: str | None
) -> None:
    """It is compared as where follow-ups are spliced: by what the model was told."""

    def history(call: Any, *more: Any) -> list[Any]:
        answer = {"role": "assistant", "content": [call]}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "816"}
        return [USER, answer, {"role": "user", "content": [result]}, *more]

    served = await serve_script(ScriptedEngine([say("Long."), say("Short.")], model=MODEL))
    first = await asked(served, None, messages=history(LOOKED))
    second = await asked(served, first["id"], messages=history(called, SAID, NEXT))
    told = Message.model_validate(second).diagnostics
    reason = None if told is None else told.cache_miss_reason
    assert (reason and reason.type) == kind


async def responded(served: Served, compared: str | None, **fields: Any) -> dict[str, Any]:
    options = {} if compared is None else {"comparison_response_id": compared}
    body = {"model": MODEL, "input": "How long is it? " * 20, "tools": FUNCTIONS} | fields
    body["prompt_cache_options"] = options
    async with served.http.post("/v1/responses", json=body) as response:
        text = await response.text()
        assert response.status == 200, text
    if not body.get("stream"):
        return dict(json.loads(text))
    done = next(line for line in text.splitlines() if '"type":"response.completed"' in line)
    return dict(json.loads(done.removeprefix("data: "))["response"])


FUNCTIONS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("look", "listen")
]
BEHIND = [
    {"role": "user", "content": "How long is it? " * 20},
    {"role": "assistant", "content": "Long."},
    {"role": "user", "content": "And the other?"},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"input": BEHIND}, "cache_hit", None),
        ({"input": BEHIND[1:]}, "cache_miss", "input_changed"),
        ({"input": BEHIND, "instructions": "Be long."}, "cache_miss", "input_changed"),
        ({"input": BEHIND, "tools": FUNCTIONS[::-1]}, "cache_miss", "tools_changed"),
        (
            {"input": BEHIND, "reasoning": {"effort": "low"}},
            "cache_miss",
            "reasoning_effort_changed",
        ),
        ({"input": BEHIND, "cache_salt": "s"}, "unavailable", None),
    ],
)
async def test_a_response_tells_what_became_of_the_cache(
    serve_script: Any, fields: dict[str, Any], kind: str, reason: str | None, stream: bool
) -> None:
    served = await serve_script(ScriptedEngine([say("Long."), say("Short.")], model=MODEL))
    first = await responded(served, None)
    assert "prompt_cache_diagnostics" not in first
    second = await responded(served, first["id"], stream=stream, **fields)
    told = Response.model_validate(second).prompt_cache_diagnostics
    assert told is not None and told.type == kind
    if told.type == "cache_miss":
        assert told.reason == reason
        prompt = first["usage"]["input_tokens"]
        assert told.cache_missed_tokens + (told.comparison_reusable_tokens or 0) == prompt
        assert told.cache_missed_tokens > 0


async def test_a_compaction_is_told(serve_script: Any) -> None:
    served = await serve_script(
        ScriptedEngine([say("Long."), say("It was long."), say("Short.")], model=MODEL)
    )
    first = await responded(served, None, input=BEHIND)
    body = {"model": MODEL, "input": BEHIND}
    async with served.http.post("/v1/responses/compact", json=body) as response:
        output = (await response.json())["output"]
    second = await responded(served, first["id"], input=[*output, BEHIND[2]])
    told = Response.model_validate(second).prompt_cache_diagnostics
    assert told is not None and told.type == "cache_miss" and told.reason == "context_compacted"


async def test_a_response_that_is_not_known_is_told(serve_script: Any) -> None:
    served = await serve_script(ScriptedEngine([say("Long.")], model=MODEL))
    told = (await responded(served, "resp_gone"))["prompt_cache_diagnostics"]
    assert told == {"type": "comparison_response_not_found"}


def read(*texts: str) -> History:
    messages = [{"role": "user", "content": text} for text in texts]
    return Histories().of(messages, SessionSpec())


def prompt_of(*texts: str, model: str = "m") -> Prompt:
    return Prompt(model, read(*texts), 0, array("I", map(len, texts)))


def test_what_a_change_costs() -> None:
    texts = ("aaaa", "bbbb", "cccc")
    before = Kept(prompt_of(*texts), 90)
    assert miss(before, prompt_of(*texts, "d"), read(*texts)) is None
    found = miss(before, prompt_of("aaaa", "xbbb", "cccc", "d"), read("aaaa", "xbbb", "cccc"))
    assert found == Miss("messages", 90, 60, 1)
    assert (found.missed(None), found.missed(32), found.missed(200)) == (60, 58, 0)
    assert miss(before, prompt_of("aaaa", "bbbb"), read("aaaa", "bbbb")) == Miss(
        "messages", 90, 30, 2
    )
    other = prompt_of(*texts, model="n")
    assert miss(before, other, other.history) == Miss("model", 90, 90)


def test_the_oldest_are_forgotten() -> None:
    diagnoses = Diagnoses()
    for number in range(MAX_KEPT + 1):
        diagnoses.keep("t", str(number), Kept(prompt_of("a"), number))
    assert diagnoses.of("t", "0") is None and diagnoses.of("u", "1") is None
    found = diagnoses.of("t", "1")
    assert found is not None and found.tokens == 1
