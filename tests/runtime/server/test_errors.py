"""Errors as clients see them: the status, the shape, and nothing of the server's insides."""

import asyncio
import threading

import pytest

from caesura.runtime.errors import (
    CaesuraError,
    ContextOverflow,
    EngineFailed,
    RequestAborted,
    RequestFailed,
    UsageError,
)
from caesura.runtime.server import create_app
from caesura.runtime.server.api import chat
from caesura.runtime.server.api.fields import MAX_MESSAGES, MAX_TOOLS
from caesura.runtime.server.http.connection import MAX_INLINE_BODY_BYTES
from caesura.runtime.server.http.errors import ApiError, overflow_in
from caesura.runtime.testing import call, fail
from caesura.scheduler.errors import RepeatedDeaths
from caesura.tools.registry import Registry
from tests.kit.server import settings


def error_of(body):
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (ContextOverflow("9000 tokens exceed 8192"), 400, "context_length_exceeded"),
        (UsageError("the tools have no room"), 400, None),
        (EngineFailed("secret: out of memory"), 503, "engine_failed"),
        (RepeatedDeaths("4 engines died"), 422, "repeated_deaths"),
        (RequestAborted("the request was aborted"), 503, "request_aborted"),
        (RequestFailed("secret"), 500, "request_failed"),
        (CaesuraError("secret"), 500, None),
        (RuntimeError("secret"), 500, None),
    ],
)
async def test_engine_errors(serve_script, raised, status, code):
    served = await serve_script([fail(raised), fail(raised)])
    for extra in ({}, {"stream": True}):
        got, body = await served.chat(**extra)
        error = error_of(body)
        assert (got, error["code"]) == (status, code)
        assert "secret" not in error["message"]
    assert served.engine.open_sessions == 0


async def test_an_overflow_in_the_words_of_anthropic(serve_script):
    """Claude Code takes from the numbers how much it has to drop."""
    raised = ContextOverflow("9000 tokens exceed 8192", 9000, 8192)
    served = await serve_script([fail(raised), fail(raised)])
    body = {**served.body(), "max_tokens": 9}
    async with served.http.post("/v1/messages", json=body) as response:
        error = (await response.json())["error"]
    assert error["message"].startswith("prompt is too long: 9000 tokens > 8192 maximum. ")
    _, body = await served.chat()
    assert "prompt" not in error_of(body)["message"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains"
            " 5000 input tokens, which",
            (5000, 4096),
        ),
        ("Input length (70) exceeds model's maximum context length (50).", (70, 50)),
        ("The engine prompt length 70 exceeds the max_model_len 50.", (70, 50)),
        # Not counted to the end, or in characters.
        ("maximum context length is 50 tokens, your prompt contains at least 51 input", None),
        ("maximum context length is 50 tokens, your prompt contains 300 characters", None),
    ],
)
def test_the_numbers_of_an_overflow_that_vllm_tells(said, expected):
    assert overflow_in(said) == expected


def test_a_refusal_for_now_says_when_to_come_back():
    assert ApiError(429, "Later.").headers == {"Retry-After": "1"}
    assert ApiError(429, "Later.", headers={"Retry-After": "7"}).headers == {"Retry-After": "7"}


async def test_error_in_the_middle_of_a_stream(serve_script):
    served = await serve_script([fail(EngineFailed("secret"), "Once upon a time")])
    *chunks, last = await served.events()
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert error_of(last)["code"] == "engine_failed"
    assert "secret" not in last["error"]["message"]
    assert '{route="/v1/chat/completions",status="503"} 1.0' in await served.metrics()


async def test_unknown_model(serve_script):
    served = await serve_script([])
    status, body = await served.chat(model="gpt-5")
    assert status == 404
    assert error_of(body)["code"] == "model_not_found"
    assert error_of(body)["param"] == "model"
    async with served.http.get("/v1/models/gpt-5") as response:
        assert response.status == 404
        assert error_of(await response.json())["code"] == "model_not_found"


async def test_invalid_body(serve_script):
    served = await serve_script([])
    status, body = await served.chat(model=...)
    assert (status, error_of(body)["param"]) == (400, "model")
    json_type = {"Content-Type": "application/json"}
    async with served.http.post("/v1/chat/completions", data=b"{", headers=json_type) as response:
        assert response.status == 400
        assert "not valid JSON" in error_of(await response.json())["message"]


async def test_unknown_route_and_wrong_method(serve_script):
    served = await serve_script([])
    async with served.http.get("/v2/anything") as response:
        assert response.status == 404
        assert error_of(await response.json())["code"] == "unknown_url"
    async with served.http.get("/v1/chat/completions") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert error_of(await response.json())["code"] == "method_not_allowed"


async def test_too_large(serve_script):
    served = await serve_script([], client_max_size=1000)
    status, body = await served.chat(messages=[{"role": "user", "content": "x" * 2000}])
    assert status == 413
    assert error_of(body)["code"] == "request_too_large"


async def test_api_key(serve_script):
    served = await serve_script(["Fine."], api_key="schlüssel")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic schlüssel"}):
        async with served.http.get("/v1/models", headers=headers) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert error_of(await response.json())["code"] == "invalid_api_key"
    async with served.http.get("/metrics") as response:
        assert response.status == 401
    async with served.http.get("/health") as response:
        assert response.status == 200
    right = {"Authorization": "Bearer schlüssel"}
    async with served.http.post(
        "/v1/chat/completions", json=served.body(), headers=right
    ) as response:
        assert response.status == 200


async def test_too_many_requests(serve_script, hanging):
    served = await serve_script([call("hang"), "Done."], [hanging.tool], max_concurrent=1)
    first = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    async with served.http.post("/v1/chat/completions", json=served.body()) as response:
        assert response.status == 429
        assert int(response.headers["Retry-After"]) >= 1
        assert error_of(await response.json())["type"] == "rate_limit_error"
    async with served.http.get("/health") as response:
        assert response.status == 200, "only completions are counted"
    hanging.released.set()
    assert (await first)[0] == 200


@pytest.mark.parametrize(
    "options", [{"api_key": ""}, {"max_concurrent": 0}, {"keep_alive_seconds": 0}]
)
def test_settings_that_make_no_sense(options):
    with pytest.raises(UsageError):
        create_app(None, Registry(), *settings(**options))


async def test_a_large_body_is_read_beside_the_event_loop(serve_script, monkeypatch):
    served = await serve_script(["Small.", "Large."])
    reading, released = threading.Event(), threading.Event()
    parse = chat.parse

    def waiting(body):
        if len(body) > MAX_INLINE_BODY_BYTES:
            reading.set()
            assert released.wait(60), "nothing else was done meanwhile"
        return parse(body)

    monkeypatch.setattr(chat, "parse", waiting)
    content = "x" * MAX_INLINE_BODY_BYTES
    large = asyncio.create_task(served.chat(messages=[{"role": "user", "content": content}]))
    await asyncio.to_thread(reading.wait, 60)
    _, small = await served.chat()
    assert small["choices"][0]["message"]["content"] == "Small."
    released.set()
    _, answer = await large
    assert answer["choices"][0]["message"]["content"] == "Large."


@pytest.mark.parametrize("field", ["messages", "tools"])
async def test_lists_without_end_are_refused(serve_script, weather, field):
    served = await serve_script([])
    item = {"messages": {"role": "user", "content": "x"}, "tools": weather}[field]
    count = {"messages": MAX_MESSAGES, "tools": MAX_TOOLS}[field] + 1
    status, body = await served.chat(**{field: [item] * count})
    assert (status, error_of(body)["param"]) == (400, field)
    assert str(count - 1) in error_of(body)["message"]
