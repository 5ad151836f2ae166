"""Where requests come from: their tenant, their session's name, and its parent's."""

import hashlib
import json
from typing import Any

import pytest

from caesura.runtime.sdk.agent import Agent
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.access import Door
from caesura.runtime.server.keys.key import tenant_of
from caesura.runtime.server.keys.sender import Sender, with_origin
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.programs import Origin
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import Behind

HEADERS = {"Caesura-Session": "main-2", "Caesura-Parent": "main-1"}


def origin_of(headers: dict[str, str], session: str = "") -> Origin:
    return Door(None).sender(headers).of_user(None, session).origin


def test_senders_are_known_by_digests_that_outlive_the_process() -> None:
    headers = {"x-api-key": "secret", "Idempotency-Key": "again"}
    shown = Door("secret").sender(headers)
    sender = shown.of_user("ann", "chatcmpl-1")
    asked = json.dumps(["http", "Bearer secret", "ann", "again"])
    assert sender.asker == hashlib.sha256(asked.encode()).hexdigest()
    owned = json.dumps(["owner", "Bearer secret", "ann"])
    assert sender.owner == hashlib.sha256(owned.encode()).hexdigest()
    assert len({shown.asker, sender.asker, shown.owner, sender.owner}) == 4
    assert "secret" not in repr(sender) + json.dumps(sender.to_wire())
    again = Sender.from_wire(json.loads(json.dumps(sender.to_wire())))
    assert (again.asker, again.owner, again.origin) == (sender.asker, sender.owner, sender.origin)
    assert sender.key is not None and again.key is None
    stranger = Door(None).sender({}).of_user(None)
    assert (stranger.asker, stranger.owner, stranger.tenant) == ("", "", "")


def test_a_tenant_is_a_digest_of_the_key_however_it_is_sent() -> None:
    bearer = origin_of({"Authorization": "Bearer secret"})
    assert bearer == origin_of({"x-api-key": "secret"}) == Origin(tenant_of("secret"))
    assert "secret" not in bearer.tenant and len(bearer.tenant) == 32
    assert bearer != origin_of({"Authorization": "Bearer other"})
    assert origin_of({}) == Origin()


def test_names_come_from_headers_and_the_answers_id() -> None:
    assert origin_of(HEADERS, "chatcmpl-1") == Origin("", "main-2", "main-1")
    assert origin_of({}, "chatcmpl-1") == Origin("", "chatcmpl-1", "")
    with pytest.raises(ApiError, match="Caesura-Parent has 257 characters: send at most 256"):
        origin_of({"Caesura-Parent": "x" * 257})


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "n": 1},
        {"model": "m", "vllm_xargs": {"caesura_tenant": "stolen", "other": 1}},
        {"model": "m", "vllm_xargs": None},
    ],
)
def test_bodies_for_vllm_tell_the_true_tenant(body: dict[str, Any]) -> None:
    told = json.loads(with_origin(json.dumps(body).encode() + b"\n", Origin("true", "", "p")))
    assert told["model"] == "m"
    kept = {"other": 1} if body.get("vllm_xargs") else {}
    assert told["vllm_xargs"] == {**kept, "caesura_tenant": "true", "caesura_parent": "p"}


def test_a_field_spelled_with_escapes_steals_no_tenant() -> None:
    body = b'{"vllm\\u005fxargs": {"caesura_tenant": "stolen"}, "model": "m"}'
    assert json.loads(body)["vllm_xargs"] == {"caesura_tenant": "stolen"}
    assert json.loads(with_origin(body, Origin("true")))["vllm_xargs"] == {"caesura_tenant": "true"}


@pytest.mark.parametrize("body", [b"{}", b"[]", b"", b'{"vllm_xargs": 1}'])
def test_bodies_that_vllm_refuses_stay_as_they_are(body: bytes) -> None:
    assert with_origin(body, Origin("t")) == body


async def test_requests_that_vllm_answers_tell_their_origin(serve_script: Any) -> None:
    behind = Behind()
    served = await serve_script([], api_key="secret", vllm=VllmServer(behind, None))
    headers = {"Authorization": "Bearer secret", "Caesura-Parent": "main-1"}
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
        async with served.http.post(path, json=served.body(), headers=headers) as response:
            assert response.status == 200
    told = [json.loads(body).get("vllm_xargs") for body in behind.bodies]
    origin = {"caesura_tenant": tenant_of("secret"), "caesura_parent": "main-1"}
    assert told == [origin, origin, None]


async def test_sessions_of_this_server_tell_their_origin(serve_script: Any) -> None:
    served = await serve_script(["One.", "Two."])
    _, answer = await served.chat()
    (first,) = served.engine.sessions
    assert first.spec.origin == Origin("", answer["id"], "")
    async with served.http.post(
        "/v1/chat/completions", json=served.body(), headers=HEADERS
    ) as response:
        assert response.status == 200
    assert served.engine.sessions[1].spec.origin == Origin("", "main-2", "main-1")


async def test_a_session_of_an_agent_names_its_parent() -> None:
    engine = ScriptedEngine(["One.", "Two.", "Three."])
    agent = Agent(engine, tools=[])
    async with agent.session() as main:
        await main.run("Go.")
        async with agent.session(parent=main) as child, agent.session(parent="else") as other:
            await child.run("Go.")
            await other.run("Go.")
    first, second, third = (session.spec.origin for session in engine.sessions)
    assert first.session == main.id and not first.parent
    assert (second.parent, third.parent) == (main.id, "else")
