"""Pictures and sounds in requests of each API, as the engine gets them."""

import json
from typing import Any

import pytest

from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import MediaRules
from caesura.scheduler.vllm_server import VllmServer
from tests.kit.server import MODEL, Behind, Served

DATA = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": DATA}}
ASKED = [{"type": "text", "text": "What is it?"}, IMAGE]
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
ANTHROPIC_IMAGE = {"type": "image", "source": SOURCE}


def sees(*script: Any) -> ScriptedEngine:
    rules = MediaRules({"image": 4, "audio": 1})
    return ScriptedEngine(script, model=MODEL, media=rules)


async def posted(served: Served, path: str, **body: Any) -> tuple[int, Any]:
    async with served.http.post(path, json={"model": MODEL, **body}) as response:
        return response.status, await response.json()


async def test_parts_of_a_chat_message_reach_the_engine(serve_script) -> None:
    served = await serve_script(sees(say("A cat.")))
    content = [*ASKED, SOUND]
    status, _ = await served.chat(messages=[{"role": "user", "content": content}])
    assert status == 200
    assert served.engine.sessions[0].turns[0][0]["content"] == content


async def test_anthropics_image_is_a_part_of_the_message_and_of_a_result(serve_script) -> None:
    served = await serve_script(sees(say("A cat.")))
    use = {"type": "tool_use", "id": "a", "name": "draw", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [ANTHROPIC_IMAGE]}
    asked = [{"type": "text", "text": "What is it?"}, ANTHROPIC_IMAGE]
    messages = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    status, _ = await posted(served, "/v1/messages", max_tokens=9, messages=messages)
    assert status == 200
    sent = served.engine.sessions[0].turns[0]
    assert sent[0]["content"] == ASKED
    assert (sent[2]["role"], sent[2]["content"]) == ("tool", [IMAGE])


async def test_a_picture_among_a_responses_input_and_its_outputs(serve_script) -> None:
    served = await serve_script(sees(say("A cat.")))
    image = {"type": "input_image", "image_url": DATA}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, image]}
    made = {"type": "function_call", "call_id": "a", "name": "draw", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": [image]}
    status, _ = await posted(served, "/v1/responses", input=[asked, made, output])
    assert status == 200
    sent = served.engine.sessions[0].turns[0]
    assert sent[0]["content"] == ASKED
    assert sent[-1]["content"] == [IMAGE]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_of_text_refuses_a_picture_by_its_field(serve_script, stream) -> None:
    served = await serve_script([])
    status, answer = await served.chat(messages=[{"role": "user", "content": ASKED}], stream=stream)
    assert (status, answer["error"]["param"]) == (400, "messages[0].content[1]")
    assert "this model takes no images" in answer["error"]["message"]
    assert served.engine.open_sessions == 0


WORDS = "[A picture was here. This model takes no images.]"


async def test_a_picture_in_a_result_does_not_end_a_session_with_a_model_of_text(
    serve_script,
) -> None:
    """An agent keeps the result in its history: a refusal would come again with each request."""
    served = await serve_script([say("A cat.")] * 3)
    call_of = {"id": "a", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
    status, _ = await served.chat(
        messages=[
            {"role": "user", "content": "Draw."},
            {"role": "assistant", "content": None, "tool_calls": [call_of]},
            {"role": "tool", "tool_call_id": "a", "content": [IMAGE]},
        ]
    )
    assert status == 200
    use = {"type": "tool_use", "id": "a", "name": "draw", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [ANTHROPIC_IMAGE]}
    messages = [
        {"role": "user", "content": "Draw."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    status, _ = await posted(served, "/v1/messages", max_tokens=9, messages=messages)
    assert status == 200
    made = {"type": "function_call", "call_id": "a", "name": "draw", "arguments": "{}"}
    image = {"type": "input_image", "image_url": DATA}
    output = {"type": "function_call_output", "call_id": "a", "output": [image]}
    status, _ = await posted(served, "/v1/responses", input=[made, output])
    assert status == 200
    assert [session.turns[0][-1]["content"] for session in served.engine.sessions] == [WORDS] * 3


async def test_vllms_server_is_sent_words_for_a_picture_in_a_result(serve_script) -> None:
    behind = Behind()
    served = await serve_script([], vllm=VllmServer(behind, None))
    tool = {"role": "tool", "tool_call_id": "a", "content": [IMAGE, SOUND]}
    status, _ = await served.chat(messages=[tool, {"role": "user", "content": [IMAGE]}])
    sent = json.loads(behind.bodies[0])["messages"]
    assert status == 200
    assert sent[0]["content"] == f"{WORDS}\n[A sound was here. This model takes no audio.]"
    assert sent[1]["content"] == [IMAGE]  # vLLM's server refuses it, with its field


async def test_a_file_id_is_refused(serve_script) -> None:
    served = await serve_script([])
    content = [{"type": "input_image", "file_id": "file-1"}]
    status, answer = await posted(
        served, "/v1/responses", input=[{"role": "user", "content": content}]
    )
    assert (status, answer["error"]["param"]) == (400, "input[0].content[0].file_id")


async def test_a_conversation_with_a_picture_is_rendered_again(serve_script) -> None:
    served = await serve_script(sees(say("A cat."), say("Black.")))
    first = {"role": "user", "content": ASKED}
    _, answer = await served.chat(messages=[first])
    said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
    await served.chat(messages=[first, said, {"role": "user", "content": "What colour?"}])
    assert 'outcome="rendered",why="media"' in await served.metrics()


async def test_an_agents_prompt_may_hold_a_picture() -> None:
    engine = sees(call("double", number=4), say("8."))
    agent = Agent(engine, tools=[double])
    answer = await agent.run(ASKED)
    assert answer.messages[0]["content"] == ASKED
    assert engine.sessions[0].turns[0][0]["content"] == ASKED
    await agent.aclose()


def double(number: int) -> int:
    """Double a number."""
    return 2 * number
