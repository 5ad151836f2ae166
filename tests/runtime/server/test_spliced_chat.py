"""Follow-ups of chat completions that vLLM's server answers, here with stand-ins for both."""

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from caesura.runtime.server.api.chat_spliced import streamed_answer, whole_answer
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.splicing import CALL, NEXT, USER, Splicing, streamed, whole


class Behind:
    """A stand-in for vLLM's application: samples the tokens 7, 8, 9 and says what it is told to."""

    def __init__(self, splicing: Splicing, *answers: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._splicing = splicing
        self._answers = list(answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append(json.loads(await Request(scope, receive).body()))
        self._splicing.tap.requests += 1
        self._splicing.tap.tokens += [7, 8, 9]
        answer = self._answers.pop(0)
        response: Any = JSONResponse(answer)
        if isinstance(answer, list):
            response = StreamingResponse(self._parts(answer), media_type="text/event-stream")
        await response(scope, receive, send)

    async def _parts(self, chunks: list[Any]) -> Any:
        for chunk in chunks:
            self._splicing.log.append("part")
            yield f"data: {chunk if chunk == '[DONE]' else json.dumps(chunk)}\n\n"


HI = {"role": "assistant", "content": "Hi."}


@pytest.mark.parametrize(
    "first", [whole(HI), streamed({"role": "assistant", "content": "H"}, {"content": "i."})]
)
async def test_a_follow_up_gets_the_tokens_of_the_answer(serve_script: Any, first: Any) -> None:
    splicing = Splicing()
    behind = Behind(splicing, first, whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    async with served.http.post("/v1/chat/completions", json=served.body()) as response:
        text = await response.text()
    assert "kv_transfer_params" not in behind.bodies[0]
    assert "Hi." in text or '"i."' in text
    await served.chat(messages=[USER, HI, NEXT])
    assert behind.bodies[1]["kv_transfer_params"] == {"prompt_token_ids": [7, 8, 9, 99]}
    assert behind.bodies[1]["messages"] == [USER, HI, NEXT]
    metrics = await served.metrics()
    assert 'caesura_followups_total{field="",outcome="spliced",why="unchanged"} 1.0' in metrics


async def test_messages_that_the_template_does_not_take_are_sent_as_tokens(
    serve_script: Any,
) -> None:
    """vLLM's server would refuse a later system message, move it or lose it, by the template."""
    splicing = Splicing()
    splicing.rearranges = True
    behind = Behind(splicing, whole(HI), whole(HI), whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    late = {"role": "developer", "content": "Be brief."}
    await served.chat(messages=[USER, late])
    await served.chat(messages=[USER])
    assert behind.bodies[0]["kv_transfer_params"] == {"prompt_token_ids": [5, 2]}
    assert "kv_transfer_params" not in behind.bodies[1]
    await served.chat(messages=[USER, late, HI, NEXT])
    assert behind.bodies[2]["kv_transfer_params"] == {"prompt_token_ids": [7, 8, 9, 99]}
    assert splicing.log == ["remembered"] * 3


async def test_a_stream_is_remembered_before_its_last_part_is_sent(serve_script: Any) -> None:
    splicing = Splicing()
    behind = Behind(splicing, streamed({"content": "Hi."}))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    events = await served.events()
    assert events[-1] == "[DONE]"
    assert splicing.log == ["part"] * 4 + ["remembered"]


@pytest.mark.parametrize(
    "fields",
    [
        {"parallel_tool_calls": False},
        {"return_token_ids": True, "logprobs": True},
        {"skip_special_tokens": False},
        {"a_field_of_a_new_client": 1},
        {"n": 2},
    ],
)
async def test_parameters_that_shape_no_prompt_are_spliced(
    serve_script: Any, fields: dict[str, Any]
) -> None:
    splicing = Splicing()
    behind = Behind(splicing, whole(HI), whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    await served.chat()
    await served.chat(messages=[USER, HI, NEXT], **fields)
    assert behind.bodies[1]["kv_transfer_params"] == {"prompt_token_ids": [7, 8, 9, 99]}
    assert fields.items() <= behind.bodies[1].items()


async def test_one_of_several_choices_is_not_remembered(serve_script: Any) -> None:
    splicing = Splicing()
    behind = Behind(splicing, streamed({"content": "Hi."}), whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    await served.events(n=2)
    assert splicing.log == ["part"] * 4


@pytest.mark.parametrize(
    ("fields", "name"),
    [({"echo": True}, "echo"), ({"documents": [{"text": "."}]}, "documents")],
)
async def test_parameters_that_may_shape_the_prompt_go_on_as_they_are(
    serve_script: Any, fields: dict[str, Any], name: str
) -> None:
    splicing = Splicing()
    behind = Behind(splicing, whole(HI), whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    await served.chat()
    await served.chat(messages=[USER, HI, NEXT], **fields)
    assert "kv_transfer_params" not in behind.bodies[1]
    line = f'caesura_followups_total{{field="{name}",outcome="rendered",why="parameter"}} 1.0'
    assert line in await served.metrics()


async def test_a_changed_name_or_reasoning_is_rendered(serve_script: Any) -> None:
    splicing = Splicing()
    thoughtful = HI | {"reasoning": "Hm."}
    behind = Behind(splicing, whole(thoughtful), *[whole(HI)] * 3)
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    await served.chat()
    for first, answer in ((USER | {"name": "Al"}, HI), (USER, HI | {"reasoning": "Ah."})):
        await served.chat(messages=[first, answer, NEXT])
        assert "kv_transfer_params" not in behind.bodies[-1]
    metrics = await served.metrics()
    for field in ("name", "reasoning"):
        line = f'caesura_followups_total{{field="{field}",outcome="rendered",why="changed"}} 1.0'
        assert line in metrics
    await served.chat(messages=[USER, thoughtful, NEXT])
    assert "kv_transfer_params" in behind.bodies[-1]


async def test_fields_that_no_template_reads_do_not_count(serve_script: Any) -> None:
    splicing = Splicing()
    behind = Behind(splicing, whole(HI), whole(HI))
    served = await serve_script([], vllm=VllmServer(behind, None, splicing=splicing))
    await served.chat()
    litellm = HI | {"provider_specific_fields": {"reasoning": None}}
    await served.chat(messages=[USER, litellm, NEXT])
    assert "kv_transfer_params" in behind.bodies[-1]


def test_a_streamed_call_is_put_together() -> None:
    opening = {"index": 0, "id": CALL["id"], "type": "function"}
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning": "Hm"},
        {"tool_calls": [opening | {"function": {"name": "weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Ulm"}'}}]},
    ]
    chunks = streamed(*deltas, finish_reason="tool_calls")
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    assert streamed_answer(body) == {
        "role": "assistant",
        "content": "",
        "reasoning": "Hm",
        "tool_calls": [CALL],
    }


@pytest.mark.parametrize(
    "fields", [{"stop_reason": "Observation:"}, {"finish_reason": "abort"}, {"finish_reason": None}]
)
def test_answers_that_did_not_end_by_themselves_are_not_continued(fields: Any) -> None:
    assert whole_answer(json.dumps(whole(HI, **fields)).encode()) is None
    chunks = streamed({"content": "Hi."}, **fields)
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    assert streamed_answer(body) is None
    assert whole_answer(json.dumps(whole(HI, stop_reason=128008)).encode()) == HI
