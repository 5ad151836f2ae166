"""The spans of requests that vLLM's application answers, here with a stand-in for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.spans import Spans, facts
from tests.kit.splicing import CALL, NEXT, USER, Splicing, Tap, streamed, whole
from tests.kit.waiting import until

CHAT = "/v1/chat/completions"
CALLS = {"role": "assistant", "content": "So.", "tool_calls": [CALL]}
TOOL = {"role": "tool", "tool_call_id": CALL["id"], "content": "Sunny."}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
NAMED = {"Caesura-Session": "main-2", "Caesura-Parent": "main-1", "X-Request-Id": "mine-7"}


class Sampling:
    """A stand-in for vLLM's application and its engine, with the tap of the engine's client."""

    def __init__(self, splicing: Splicing, *answers: Any, reason: str | None = "stop") -> None:
        self._splicing = splicing
        self._answers = list(answers)
        self._reason = reason
        self._number = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        answer = self._answers.pop(0)
        if answer is None:
            await JSONResponse({"error": {"message": "no"}}, 400)(scope, receive, send)
            return
        self._number += 1
        self.sample(self._splicing.tap, f"chatcmpl-{self._number}")
        response: Any = JSONResponse(answer)
        if isinstance(answer, list):
            parts = [f"data: {p if p == '[DONE]' else json.dumps(p)}\n\n" for p in answer]
            response = StreamingResponse(iter(parts), media_type="text/event-stream")
        await response(scope, receive, send)

    def sample(self, tap: Tap, request_id: str) -> None:
        tap.requests += 1
        tap.tokens += [7, 8, 9]
        if tap.listener is not None:
            tap.listener.sent(request_id)
            tap.listener.first()
        tap.prompt_tokens, tap.completion_tokens, tap.cached_tokens = 20, 3, 16
        tap.reason = self._reason


def called(as_stream: bool) -> Any:
    """A completion that ends with a call."""
    if not as_stream:
        return whole(CALLS, finish_reason="tool_calls")
    delta = {"tool_calls": [{"index": 0, **CALL}]}
    return streamed({"role": "assistant", "content": "So."}, delta, finish_reason="tool_calls")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_of_vllm_has_the_spans_of_ours(
    serve_script: Any, spans: Spans, stream: bool
) -> None:
    splicing = Splicing()
    behind = Sampling(splicing, called(stream), whole({"role": "assistant", "content": "Warm."}))
    vllm = VllmServer(behind, None, splicing=splicing)
    served = await serve_script([], vllm=vllm, tracing=spans.processor)
    body = served.body(tools=TOOLS, user="jo", stream=stream)
    async with served.http.post(CHAT, json=body, headers=NAMED) as response:
        assert response.status == 200
        await response.read()
    await served.chat(messages=[USER, CALLS, TOOL], tools=TOOLS, user="jo")
    await until(lambda: len(spans.named("invoke_agent")) == 2)
    first, second = spans.named("invoke_agent")
    asked, answered = spans.named("chat")
    told = facts(first)
    assert told["gen_ai.response.id"] == told["caesura.request.id"] == "chatcmpl-1"
    assert (told["user.id"], told["session.id"], told["caesura.session.parent"]) == (
        *("jo", "main-2", "main-1"),
    )
    assert told["caesura.x_request_id"] == "mine-7"
    assert told["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert told["caesura.calls"] == 1
    turn = facts(asked)
    assert asked.parent is not None and first.context is not None
    assert asked.parent.span_id == first.context.span_id
    assert turn["caesura.request.id"] == "chatcmpl-1"
    assert (turn["gen_ai.usage.output_tokens"], turn["gen_ai.usage.cache_read.input_tokens"]) == (
        *(3, 16),
    )
    assert turn["gen_ai.response.time_to_first_chunk"] >= 0
    assert "caesura.follow_up.outcome" not in turn
    assert facts(answered)["caesura.follow_up.outcome"] == "spliced"
    assert facts(second)["gen_ai.response.finish_reasons"] == ("stop",)
    assert "So." not in spans.text() and "Sunny." not in spans.text()


async def test_a_changed_history_names_what_differs(serve_script: Any, spans: Spans) -> None:
    splicing = Splicing()
    hi = {"role": "assistant", "content": "Hi."}
    behind = Sampling(splicing, whole(hi), whole(hi), whole(hi))
    vllm = VllmServer(behind, None, splicing=splicing)
    served = await serve_script([], vllm=vllm, tracing=spans.processor)
    await served.chat(messages=[USER])
    await served.chat(messages=[{**USER, "content": "Changed"}, hi, NEXT])
    await served.chat(messages=[USER, hi, NEXT], reasoning_effort="high")
    told = [facts(span) for span in spans.named("chat")[1:]]
    assert [one["caesura.follow_up.outcome"] for one in told] == ["rendered", "rendered"]
    assert [one["caesura.follow_up.why"] for one in told] == ["changed", "changed"]
    assert told[0]["caesura.follow_up.field"] == "messages[0].content"


async def test_texts_are_recorded_where_they_are_wanted(serve_script: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.sqlite")
    splicing = Splicing()
    with Recorder(store, "test", "serve", content=True) as recorder:
        vllm = VllmServer(Sampling(splicing, called(False)), None, splicing=splicing)
        served = await serve_script([], vllm=vllm, recorder=recorder)
        await served.chat(messages=[USER], tools=TOOLS)
        await served.app.close()
    assert recorder.recording is not None
    entries = list(catalog.entries(store.path, recorder.recording))
    (turn,) = [one for one in entries if one["kind"] == "span" and one["name"].startswith("chat")]
    assert "Hello" in turn["attributes"]["gen_ai.input.messages"]
    written = json.loads(turn["attributes"]["gen_ai.output.messages"])
    assert written[0]["parts"][0] == {"type": "text", "content": "So."}
    assert written[0]["parts"][1]["name"] == "weather"
    (http,) = [one for one in entries if one["kind"] == "http"]
    assert http["answer"] == "chatcmpl-1"


async def test_what_differs_is_recorded_as_texts_where_they_are_wanted(
    serve_script: Any, tmp_path: Path
) -> None:
    store = Store(tmp_path / "traces.sqlite")
    splicing = Splicing()
    hi = {"role": "assistant", "content": "Hi."}
    with Recorder(store, "test", "serve", content=True) as recorder:
        vllm = VllmServer(Sampling(splicing, whole(hi), whole(hi)), None, splicing=splicing)
        served = await serve_script([], vllm=vllm, recorder=recorder)
        await served.chat(messages=[USER])
        await served.chat(messages=[{**USER, "content": "Changed"}, hi, NEXT])
        await served.app.close()
    assert recorder.recording is not None
    entries = list(catalog.entries(store.path, recorder.recording))
    turns = [one for one in entries if one["kind"] == "span" and one["name"].startswith("chat")]
    told = turns[1]["attributes"]
    assert (told["caesura.follow_up.kept"], told["caesura.follow_up.sent"]) == ("Hello", "Changed")


async def test_a_request_that_is_refused_has_no_run(serve_script: Any, spans: Spans) -> None:
    splicing = Splicing()
    vllm = VllmServer(Sampling(splicing, None), None, splicing=splicing)
    served = await serve_script([], vllm=vllm, tracing=spans.processor)
    status, _ = await served.chat()
    assert status == 400 and spans.all == ()


async def test_a_request_without_an_end_was_left(serve_script: Any, spans: Spans) -> None:
    splicing = Splicing()
    hi = whole({"role": "assistant", "content": "Hi."})
    vllm = VllmServer(Sampling(splicing, hi, reason=None), None, splicing=splicing)
    served = await serve_script([], vllm=vllm, tracing=spans.processor)
    await served.chat()
    await until(lambda: spans.named("invoke_agent"))
    for name in ("chat", "invoke_agent"):
        assert spans.one(name).status.status_code is StatusCode.ERROR
        assert facts(spans.one(name))["error.type"] == "cancelled"


async def test_other_routes_of_vllm_have_runs_too(serve_script: Any, spans: Spans) -> None:
    splicing = Splicing()
    behind = Sampling(splicing, {"choices": [{"text": "x"}]})

    @contextmanager
    def tapped() -> Iterator[Tap]:
        with splicing.tapped() as tap:
            yield tap

    served = await serve_script(
        [], vllm=VllmServer(behind, None, tapped=tapped), tracing=spans.processor
    )
    async with served.http.post("/v1/completions", json={"model": "m", "prompt": "Go"}) as answer:
        assert answer.status == 200
    told = facts(spans.one("invoke_agent"))
    assert told["gen_ai.request.model"] == "m"
    assert (told["gen_ai.usage.output_tokens"], told["caesura.turns"]) == (3, 1)
