"""Requests that vLLM's own server answers, here with a stand-in for it."""

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.messages import MediaRules
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL, Behind
from tests.tools.net.sites import site

__all__ = ["site"]

OTHER = {"method": "POST", "path": "/v1/completions"}


async def post(served: Any, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    async with served.http.post(path, data=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)


async def test_chat_without_server_tools_and_unknown_routes_go_on(serve_script, double):
    behind = Behind()
    served = await serve_script(["Ours."], [double], vllm=VllmServer(behind, None))
    body = json.dumps(served.body(odd="field")).encode()
    for path in ("/v1/chat/completions", "/v1/completions", "/anything/else"):
        assert await post(served, path, body) == (200, {"path": path, "answered": "behind"})
    assert behind.bodies == [body] * 3
    status, answer = await served.chat(server_tools=["double"])
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Ours.")
    assert len(behind.bodies) == 3


async def test_allowed_tools_are_chosen_here_since_vllm_refuses_them(serve_script):
    behind = Behind()
    served = await serve_script(["Ours."], vllm=VllmServer(behind, None))
    tools = [{"type": "function", "function": {"name": name}} for name in ("add", "negate")]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools[:1]}}
    status, answer = await served.chat(tools=tools, tool_choice=choice)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Ours.")
    assert behind.bodies == []


@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [
        ({}, True),
        ({"tool_choice": "auto"}, True),
        ({"tool_choice": "required"}, False),
        ({"tools": []}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"model": "an-adapter"}, False),
        ({"odd": "field"}, True),
        ({"ignore_eos": True}, False),
    ],
)
async def test_calls_or_a_schema_are_ours_since_vllm_allows_no_call(serve_script, fields, is_ours):
    behind = Behind()
    served = await serve_script(["Ours."], vllm=VllmServer(behind, None))
    tool = {"type": "function", "function": {"name": "add"}}
    asked = {"tools": [tool], "response_format": {"type": "json_object"}} | fields
    status, _ = await post(
        served, "/v1/chat/completions", json.dumps(served.body(**asked)).encode()
    )
    assert (status, len(behind.bodies)) == (200, 0 if is_ours else 1)


async def test_the_key_guards_what_lies_behind(serve_script):
    behind = Behind()
    served = await serve_script([], api_key="secret", vllm=VllmServer(behind, None))
    assert (await post(served, "/v1/completions", b"{}"))[0] == 401
    assert behind.bodies == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt": "' + b"x" * 51 + b'"}', "and this request has 51"),
        (b'{"prompt": ' + b"[" * 300 + b"]" * 300 + b"}", "nested more than 200 deep"),
        (b'{"prompt": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"prompt": "\\ud800"}', "half a character"),
        (b'{"prompt": "x", "top_k": 18446744073709551616}', "more than 64 bits"),
        (b'{"stop": ["' + b'x", "' * 64 + b'x"]}', "stop has 65 items"),
        (
            b'{"messages": [{"tool_calls": [{"function": {"arguments": "[\\"\\\\ud800\\"]"}}]}]}',
            "arguments hold half a character",
        ),
        (b'{"tools": [' + b"1," * 4096 + b"1]}", "tools has 4097 items"),
        (b"[]", "must be a JSON object"),
        (b'{"prompt":', "not valid JSON"),
    ],
)
async def test_bodies_beyond_a_bound_stay_here(serve_script, body, message):
    behind = Behind()
    served = await serve_script([], vllm=VllmServer(behind, 50))
    status, answer = await post(served, "/v1/completions", body)
    assert status == 400
    assert message in answer["error"]["message"]
    assert behind.bodies == []


@pytest.mark.parametrize("field", ["input", "prompt", "documents", "messages"])
async def test_each_prompt_of_a_batch_has_the_whole_bound(serve_script, field):
    def batch(*characters: int) -> list[Any]:
        texts = ["x" * count for count in characters]
        return [[{"content": each}] for each in texts] if field == "messages" else texts

    behind = Behind()
    served = await serve_script([], vllm=VllmServer(behind, 50))
    fits = json.dumps({"model": "m" * 10, field: batch(40, 40, 40)}).encode()
    assert (await post(served, "/v1/completions", fits))[0] == 200
    longer = json.dumps({"model": "m" * 10, field: batch(40, 41)}).encode()
    status, answer = await post(served, "/v1/completions", longer)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "and this request has 51" in answer["error"]["message"]
    assert behind.bodies == [fits]


async def test_pictures_are_no_text(serve_script):
    url = {"url": "data:image/png;base64," + "A" * 1000}
    body = {"messages": [{"content": [{"type": "image_url", "image_url": url}]}]}
    served = await serve_script([], vllm=VllmServer(Behind(), 50))
    assert (await post(served, "/v1/chat/completions", json.dumps(body).encode()))[0] == 200
    pair = {"prompt": "\ud83d\ude00"}
    assert (await post(served, "/v1/completions", json.dumps(pair).encode()))[0] == 200


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            JSONResponse({"error": {"message": "The model `x` is gone.", "code": 404}}, 404),
            (404, "model_not_found", "The model `x` is gone."),
        ),
        (
            JSONResponse({"error": {"message": "maximum context length is 5", "code": 400}}, 400),
            (400, "context_length_exceeded", "maximum context length is 5"),
        ),
        (JSONResponse({"detail": "Not Found"}, 404), (404, "unknown_url", "no such route")),
        (
            JSONResponse({"detail": "Method Not Allowed"}, 405, {"Allow": "GET"}),
            (405, "method_not_allowed", "Method Not Allowed"),
        ),
        (JSONResponse({"error": "No."}, 503), (503, None, "No.")),
    ],
)
async def test_errors_get_our_form(serve_script, answer, expected):
    served = await serve_script([], vllm=VllmServer(Behind(answer), None))
    status, body = await post(served, "/v1/completions", b"{}")
    assert (status, body["error"]["code"]) == expected[:2]
    assert expected[2] in body["error"]["message"]
    assert body["error"]["type"] in ("invalid_request_error", "server_error")


async def test_langchain_finds_the_code_of_an_overflow_in_its_message(serve_script):
    said = {"error": {"message": "maximum context length is 5", "code": 400}}
    served = await serve_script([], vllm=VllmServer(Behind(JSONResponse(said, 400)), None))
    _, body = await post(served, "/v1/completions", b"{}")
    assert "context_length_exceeded" in body["error"]["message"]


async def test_threads_of_messages_are_refused_so_that_clients_send_all(serve_script):
    behind = Behind()
    served = await serve_script([], vllm=VllmServer(behind, None))
    begun = b'{"thread": {"type": "create"}, "messages": []}'
    status, body = await post(served, "/v1/messages", begun)
    assert (status, behind.bodies) == (400, [])
    assert body["error"]["details"]["error_code"] == "thread_unsupported_request"


async def test_other_errors_stay_as_they_are(serve_script):
    served = await serve_script([], vllm=VllmServer(Behind(Response("teapot", 418)), None))
    async with served.http.get("/teapot") as response:
        assert (response.status, await response.text()) == (418, "teapot")


async def test_vllm_is_sent_no_address(serve_script, site):
    """It would ask any address that a request names."""
    behind = Behind()
    engine = ScriptedEngine([], model=MODEL, media=MediaRules({"image": 1}))
    served = await serve_script(engine, vllm=VllmServer(behind, None))
    url = site.says("/a.png", b"picture", Content_Type="image/png")
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"image_url": url},
        {"type": "image", "source": {"type": "url", "url": url}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    ]
    for part in parts:
        body = served.body(messages=[{"role": "user", "content": [part]}])
        hidden = json.dumps(body).replace("url", "\\u0075rl")
        for raw in (json.dumps(body), hidden):
            status, _ = await post(served, "/v1/chat/completions", raw.encode())
            assert status == 400
    assert behind.bodies == [] and site.seen == []
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    body = json.dumps(served.body(messages=[{"role": "user", "content": [inline]}])).encode()
    assert (await post(served, "/v1/chat/completions", body))[0] == 200
    assert behind.bodies == [body]


async def test_vllm_is_sent_what_is_at_an_address(serve_script, site):
    behind = Behind()
    engine = ScriptedEngine([], model=MODEL, media=MediaRules({"image": 1}))
    served = await serve_script(engine, vllm=VllmServer(behind, None), allow_private=True)
    url = site.says("/a.png", b"x", Content_Type="image/png")
    part = {"type": "image_url", "image_url": {"url": url}}
    body = served.body(messages=[{"role": "user", "content": [part]}])
    assert (await post(served, "/tokenize", json.dumps(body).encode()))[0] == 200
    (sent,) = map(json.loads, behind.bodies)
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    assert sent["messages"][0]["content"] == [inline]
