"""The names by which agents call their sessions, threads and parents, as they send them."""

import json
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.front.asked import asked_in
from caesura.runtime.server.http.lineage import (
    DIALECTS,
    FINAL,
    OWN,
    named_by,
    named_in,
    without_session,
)
from caesura.scheduler.programs import Origin
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import Behind

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "requests.md"
BEGIN, END = "<!-- begin dialects -->\n", "<!-- end dialects -->"
ONE, TWO, THREE = (f"0199a1b2-0000-7000-8000-00000000000{n}" for n in (1, 2, 3))
OLD_USER = f"user_aa11_account__session_{ONE}"
NEW_USER = json.dumps({"device_id": "aa11", "account_uuid": "", "session_id": ONE})


def table() -> str:
    """Return the table of docs/reference/requests.md; this module, run as a program, writes it."""
    rows = ["| client | session | thread | parent |", "| --- | --- | --- | --- |"]
    for dialect in (OWN, *DIALECTS):
        session = ", ".join(f"`{name}`" for name in dialect.session)
        thread = f"`{dialect.thread}`" if dialect.thread else ""
        rows.append(f"| {dialect.clients} | {session} | {thread} | `{dialect.parent}` |")
    return "\n".join(rows) + "\n"


def test_the_page_shows_the_table() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == table()


@pytest.mark.parametrize(
    ("headers", "session", "parent"),
    [
        # Codex: the first thread of a session has the session's name, a spawned one its own.
        ({"session-id": ONE, "thread-id": ONE}, ONE, ""),
        ({"session_id": ONE}, ONE, ""),
        ({"session-id": ONE, "thread-id": TWO, "x-openai-subagent": "review"}, TWO, ONE),
        (
            {
                "session-id": ONE,
                "thread-id": THREE,
                "x-codex-parent-thread-id": TWO,
                "x-openai-subagent": "collab_spawn",
            },
            THREE,
            TWO,
        ),
        # Claude Code: agents have names within a session.
        ({"X-Claude-Code-Session-Id": ONE}, ONE, ""),
        ({"X-Claude-Code-Session-Id": ONE, "X-Claude-Code-Agent-Id": "a1"}, f"{ONE}/a1", ONE),
        (
            {
                "X-Claude-Code-Session-Id": ONE,
                "X-Claude-Code-Agent-Id": "a2",
                "X-Claude-Code-Parent-Agent-Id": "a1",
            },
            f"{ONE}/a2",
            f"{ONE}/a1",
        ),
        # OpenCode, and verifiers.
        ({"x-session-id": "ses_1", "x-parent-session-id": "ses_0"}, "ses_1", "ses_0"),
        ({"X-Session-ID": "rollout-7"}, "rollout-7", ""),
        # Dynamo's names come before an agent's, and ours before all, each for itself.
        (
            {"X-Dynamo-Session-ID": "d2", "X-Dynamo-Parent-Session-ID": "d1", "X-Session-ID": "s"},
            "d2",
            "d1",
        ),
        ({"Caesura-Parent": "p", "X-Session-ID": "s", "X-Parent-Session-ID": "q"}, "s", "p"),
        ({"Caesura-Session": "c", "session-id": ONE}, "c", ""),
        # A parent alone, a name of spaces and a name that is too long name nothing.
        ({"X-Parent-Session-ID": "q"}, "", ""),
        ({"X-Session-ID": "  "}, "", ""),
        ({"X-Dynamo-Session-ID": "x" * 257, "X-Session-ID": "s"}, "s", ""),
    ],
)
def test_headers_of_agents(headers: dict[str, str], session: str, parent: str) -> None:
    assert named_by(headers) == Origin("", session, parent)
    scope = {
        "path": "/v1/messages",
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }
    assert asked_in(scope, b"").session == session


@pytest.mark.parametrize(
    ("fields", "session", "parent"),
    [
        ({"client_metadata": {"session_id": ONE, "thread_id": ONE}}, ONE, ""),
        (
            {
                "client_metadata": {
                    "session_id": ONE,
                    "thread_id": THREE,
                    "x-codex-parent-thread-id": TWO,
                    "x-codex-installation-id": 7,
                },
                "prompt_cache_key": ONE,
            },
            THREE,
            TWO,
        ),
        ({"client_metadata": {"thread_id": 1}, "prompt_cache_key": TWO}, TWO, ""),
        ({"metadata": {"user_id": OLD_USER}}, ONE, ""),
        ({"metadata": {"user_id": NEW_USER}}, ONE, ""),
        ({"metadata": {"user_id": "ann"}}, "", ""),
        ({"metadata": {"user_id": "my_session_is_long"}}, "", ""),
        ({"metadata": {"user_id": '{"session_id": 1}'}}, "", ""),
        ({"metadata": {"user_id": "{"}, "prompt_cache_key": f"conversation-{TWO}"}, None, ""),
        ({"prompt_cache_key": "support-prompts-v3"}, "", ""),
        ({"prompt_cache_key": 7, "metadata": "x", "client_metadata": []}, "", ""),
    ],
)
def test_fields_of_agents(fields: dict[str, Any], session: str | None, parent: str) -> None:
    expected = f"conversation-{TWO}" if session is None else session
    assert named_in(fields) == Origin("", expected, parent)


def test_a_user_is_the_same_in_each_session() -> None:
    assert without_session(OLD_USER) == "user_aa11_account_"
    assert without_session(NEW_USER) == without_session(NEW_USER.replace(ONE, TWO))
    assert [without_session(user) for user in (None, "", "ann", "{")] == [None, "", "ann", "{"]


async def test_a_body_names_the_session_on_each_route(serve_script: Any) -> None:
    served = await serve_script(["One.", "Two.", "Three.", "Four."])
    user = {"metadata": {"user_id": OLD_USER}, "max_tokens": 9}
    told = {"session_id": ONE, "thread_id": TWO, "x-codex-parent-thread-id": ONE}
    for path, fields in (
        ("/v1/chat/completions", served.body(prompt_cache_key=ONE)),
        ("/v1/messages", served.body() | user),
        (
            "/v1/responses",
            {"model": served.body()["model"], "input": "Hello."} | {"client_metadata": told},
        ),
    ):
        async with served.http.post(path, json=fields) as response:
            assert response.status == 200, await response.text()
    origins = [session.spec.origin for session in served.engine.sessions]
    assert origins == [Origin("", ONE), Origin("", ONE), Origin("", TWO, ONE)]
    headers = {"session-id": THREE, "thread-id": THREE}
    async with served.http.post(
        "/v1/chat/completions", json=served.body(prompt_cache_key=ONE), headers=headers
    ) as response:
        assert response.status == 200
    assert served.engine.sessions[-1].spec.origin == Origin("", THREE)


async def test_what_vllm_answers_is_told_the_names_too(serve_script: Any) -> None:
    behind = Behind()
    served = await serve_script([], vllm=VllmServer(behind, None))
    headers = {"x-session-id": "ses_1", "x-parent-session-id": "ses_0"}
    for given in (headers, {}):
        body = served.body(prompt_cache_key=ONE)
        async with served.http.post("/v1/chat/completions", json=body, headers=given) as response:
            assert response.status == 200
    first, second = (json.loads(body)["vllm_xargs"] for body in behind.bodies)
    assert first == {"caesura_session": "ses_1", "caesura_parent": "ses_0"}
    assert second == {"caesura_session": ONE}


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


@pytest.mark.parametrize("header", FINAL)
async def test_a_session_ends_behind_the_answer_to_its_last_request(
    serve_script: Any, header: str
) -> None:
    """Whatever route answers it, also with an error; a request that names no session ends none."""
    served = await serve_script(["One.", "Two."])
    ended = served.engine.ended_sessions
    chat = "/v1/chat/completions"
    for path, fields, given in (
        (chat, served.body(), {"X-Session-ID": "s0", header: "false"}),
        (chat, served.body(), {header: "true"}),
        (chat, {}, {"X-Session-ID": "s1", "X-Parent-Session-ID": "s0", header: "True"}),
        ("/v1/messages", {}, {"X-Session-ID": "s2", header: "true"}),
    ):
        async with served.http.post(path, json=fields, headers=given) as response:
            await response.read()
    assert ended == [Origin("", "s1"), Origin("", "s2")]
