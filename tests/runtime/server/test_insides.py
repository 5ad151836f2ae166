"""No answer tells a client of pydantic, of vLLM's code or of Python's, whatever it has sent."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.entrypoints.serve.exception_handling.handlers.validation import (
    validation_exception_handler,
)

from caesura.runtime.server.http.wording import plain
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL, Behind
from tests.kit.wrong_bodies import BODIES, CHAT, INSIDES, RESPONSES, wrong_bodies

AT_ONCE = 16


def assert_plain(text: str, about: str) -> None:
    found = INSIDES.search(text)
    assert found is None, f"{about}: {found[0]!r} in {text[:500]}" if found else ""


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda each: str(each)[:24])
@pytest.mark.parametrize("stream", [False, True])
async def test_wrong_fields_on_our_routes(
    serve_script: Any, path: str, body: Mapping[str, Any], stream: bool
) -> None:
    bodies = [*wrong_bodies(body, MODEL)]
    served = await serve_script(ScriptedEngine(["Fine."] * 3 * len(bodies), model=MODEL))
    places = asyncio.Semaphore(AT_ONCE)
    statuses: dict[int, int] = {}

    async def post(about: str, wrong: dict[str, Any]) -> None:
        sent = {**wrong, "stream": True} if stream else wrong
        async with places, served.http.post(path, json=sent) as response:
            text = await response.text()
        assert_plain(text, f"{path}: {about}")
        statuses[response.status] = statuses.get(response.status, 0) + 1
        if response.status >= 400:
            assert response.status < 500, f"{path}: {about}: {text[:500]}"
            error = json.loads(text)["error"]
            assert error["message"][-1:] in ".!?)"

    await asyncio.gather(*(post(*each) for each in bodies))
    assert statuses.get(400, 0) > len(bodies) / 4


async def test_wrong_frames_of_a_websocket(serve_script: Any) -> None:
    bodies = [*wrong_bodies(RESPONSES, MODEL)]
    served = await serve_script(ScriptedEngine(["Fine."] * 3 * len(bodies), model=MODEL))
    async with served.http.ws_connect("/v1/responses") as socket:
        for about, wrong in bodies:
            await socket.send_json({"type": "response.create", **wrong})
            kind = ""
            while kind not in ("error", "response.completed", "response.incomplete"):
                text = (await socket.receive()).data
                assert_plain(text, about)
                kind = json.loads(text)["type"]
                assert kind != "response.failed", f"{about}: {text}"


class State:
    """What vLLM's handler of errors asks of a request's application."""

    log_error_stack = False
    app = state = args = property(lambda self: self)


def of_validation(wrong: dict[str, Any]) -> bytes | None:
    """Return what vLLM's server answers to a wrong chat completion, or None if it is right."""
    try:
        TypeAdapter(ChatCompletionRequest).validate_python(wrong)
    except ValidationError as error:
        errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        state: Any = State()
        made = asyncio.run(validation_exception_handler(state, RequestValidationError(errors)))
        return bytes(made.body)
    except Exception as error:
        return create_error_response(error).model_dump_json().encode()
    return None


def test_vllms_own_words_about_fields() -> None:
    told = 0
    for about, wrong in wrong_bodies(CHAT, MODEL):
        body = of_validation(wrong)
        if body is None:
            continue
        error = json.loads(body)["error"]
        message, path = plain(error["message"], error["param"])
        assert_plain(message, about)
        field = about.partition(" ")[0].partition(".")[0]
        told += path is not None and path.startswith(field)
    assert told > 100


@pytest.mark.parametrize(
    ("message", "param", "expected"),
    [
        (
            "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.n', 'msg': 'Input should"
            " be a valid integer', 'input': 'x', 'url': 'https://errors.pydantic.dev/2/v/i'}",
            "body.n",
            ("n: input should be a valid integer.", "n"),
        ),
        (
            "2 validation errors for ChatCompletionRequest\nstop.str\n  Input should be a valid"
            " string [type=string_type, input_value={'a': 1}, input_type=dict]\n    For further"
            " information visit https://errors.pydantic.dev/2.14/v/string_type",
            None,
            ("stop: input should be a valid string.", "stop"),
        ),
        (
            "1 validation error:\n  {'type': 'value_error', 'loc': 'body.messages.0.content',"
            " 'msg': \"Value error, it's wrong\", 'ctx': {'error': ValueError('x')}}",
            "body.messages.0.content",
            ("messages[0].content: it's wrong.", "messages[0].content"),
        ),
        (
            "`logprobs` must be set. (parameter=top_logprobs, value=3)",
            None,
            ("`logprobs` must be set.", "top_logprobs"),
        ),
        ("Too many. See vllm.config.ModelConfig for more.", None, ("Too many.", None)),
        ("The prompt is empty", None, ("The prompt is empty.", None)),
    ],
)
def test_words_of_others(message: str, param: str | None, expected: tuple[str, str | None]) -> None:
    assert plain(message, param) == expected


@pytest.mark.parametrize(
    "message",
    [
        "'int' object is not iterable",
        "unhashable type: 'list'",
        'Traceback (most recent call last):\n  File "x.py", line 3\nValueError: no',
        "<class 'vllm.foo'> failed",
    ],
)
def test_words_of_code_become_a_sentence(message: str) -> None:
    told, _ = plain(message)
    assert_plain(told, message)
    assert told.startswith("The request cannot be answered.")


async def test_a_failure_of_vllms_server_tells_nothing_of_it(serve_script: Any) -> None:
    said = {"error": {"message": "'Foo' object has no attribute 'x'", "code": 500}}
    served = await serve_script([], vllm=VllmServer(Behind(JSONResponse(said, 500)), None))
    status, body = await served.chat()
    assert (status, body["error"]["code"]) == (500, "request_failed")
    assert "Foo" not in body["error"]["message"]


IN_STREAM = {
    "/v1/chat/completions": (
        b'data: {"choices": [{"delta": {"content": "\\"error\\":"}}]}\n\n',
        b'data: {"error": {"message": "1 validation error for X\\nn\\n  Bad [type=x,'
        b' input_type=int]", "type": "BadRequestError", "param": null, "code": 400}}\n\n',
        b"data: [DONE]\n\n",
    ),
    "/v1/messages": (
        b'event: error\ndata: {"type": "error", "error": {"type": "internal_error",'
        b' "message": "vllm.v1.engine died"}}\n\n',
    ),
}


@pytest.mark.parametrize("path", IN_STREAM)
async def test_errors_within_streams_of_vllm(serve_script: Any, path: str) -> None:
    async def parts() -> Any:
        for part in IN_STREAM[path]:
            yield part

    answer: Response = StreamingResponse(parts(), media_type="text/event-stream")
    behind = VllmServer(Behind(answer), None, parses_alone=True)
    served = await serve_script([], vllm=behind)
    body = served.body(stream=True, max_tokens=9)
    async with served.http.post(path, json=body) as response:
        text = await response.text()
    assert_plain(text, path)
    if path == "/v1/messages":
        (told,) = text.split("\n\n")[:-1]
        assert told.startswith("event: error\ndata: ")
        assert json.loads(told.partition("data: ")[2])["error"]["type"] == "api_error"
        status = 500
    else:
        first, told, done = text.split("\n\n")[:-1]
        assert (first.encode() + b"\n\n", done) == (IN_STREAM[path][0], "data: [DONE]")
        error = json.loads(told.removeprefix("data: "))["error"]
        assert (error["message"], error["param"]) == ("n: bad.", "n")
        status = 400
    assert f'route="{path}",status="{status}"' in await served.metrics()
