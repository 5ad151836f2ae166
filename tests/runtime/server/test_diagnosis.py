"""Why the prompt cache missed, as Anthropic's `diagnostics` tells it, by the client's own types."""

import json
from typing import Any

import pytest
from anthropic.types import Message

from caesura.runtime.server.keys.key import Key
from caesura.runtime.server.load.diagnosis import MAX_KEPT, Diagnoses, Fingerprint, Kept, Miss, miss
from caesura.runtime.testing import ScriptedEngine, say
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


def print_of(*messages: str, model: str = "m") -> Fingerprint:
    return Fingerprint(model, "t", "s", messages, tuple(map(len, messages)), "o")


def test_what_a_change_costs() -> None:
    before = Kept(print_of("aaaa", "bbbb", "cccc"), 90)
    assert miss(before, print_of("aaaa", "bbbb", "cccc", "d")) is None
    found = miss(before, print_of("aaaa", "xbbb", "cccc", "d"))
    assert found == Miss("messages", 90, 60)
    assert (found.missed(None), found.missed(32), found.missed(200)) == (60, 58, 0)
    assert miss(before, print_of("aaaa", "bbbb")) == Miss("messages", 90, 30)
    assert miss(before, print_of("aaaa", "bbbb", "cccc", model="n")) == Miss("model", 90, 90)


def test_the_oldest_are_forgotten() -> None:
    diagnoses = Diagnoses()
    for number in range(MAX_KEPT + 1):
        diagnoses.keep("t", str(number), Kept(print_of("a"), number))
    assert diagnoses.of("t", "0") is None and diagnoses.of("u", "1") is None
    found = diagnoses.of("t", "1")
    assert found is not None and found.tokens == 1
