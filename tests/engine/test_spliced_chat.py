"""Follow-ups of chat completions that vLLM's own server answers, on the real engine."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from caesura.runtime.launch import CPU_BLOCK_SIZE, record
from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from tests.engine.asked import ANSWER, THOUGHT, WRITTEN
from tests.engine.templates import over

pytestmark = pytest.mark.engine

TOOLS: Any = [calculator.spec()]
QUESTION: Any = {"role": "user", "content": "What is 48 * 17? Please be exact."}
NEXT: Any = {"role": "user", "content": "Thank you! And who are you?"}


class Client:
    """An OpenAI client of one server."""

    def __init__(self, url: str) -> None:
        self.openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    async def chat(self, *messages: Any, **fields: Any) -> Any:
        settings: Any = {"max_tokens": 60, "temperature": 0} | fields
        return await self.openai.chat.completions.create(
            model="caesura-tiny", messages=messages, **settings
        )

    async def streamed(self, *messages: Any, **fields: Any) -> Any:
        """Return the final message of a stream."""
        settings: Any = {"max_tokens": 60, "temperature": 0} | fields
        async with self.openai.chat.completions.stream(
            model="caesura-tiny", messages=messages, **settings
        ) as stream:
            completion = await stream.get_final_completion()
        return completion.choices[0].message

    async def follow_ups(self) -> dict[str, int]:
        """Return how many follow-ups there were so far, by reason."""
        text = (await self.openai._client.get("/metrics")).text
        found = re.findall(
            r'caesura_followups_total\{field="\w*",outcome="\w+",why="(\w+)"\} (\d+)', text
        )
        counts: Counter[str] = Counter()
        for why, count in found:
            counts[why] += int(count)
        return dict(counts)


@asynccontextmanager
async def served(engine: VllmEngine) -> AsyncIterator[Client]:
    async with engine.backend.server() as vllm:
        app = create_app(engine, Registry(), parts=ServerParts(vllm=vllm))
        async with listening(app, shutdown_timeout=1) as port:
            made = Client(f"http://127.0.0.1:{port}")
            made.openai._client.base_url = f"http://127.0.0.1:{port}"
            yield made
            await made.openai.close()


@pytest.fixture
async def client(engine: VllmEngine, settled: Any) -> AsyncIterator[Client]:
    async with served(engine) as client:
        yield client


async def test_turns_of_vllm_are_traced_with_the_engines_figures(
    engine: VllmEngine, settled: Any, tmp_path: Path
) -> None:
    """Its run has the id that the client gets, which the engine's records begin with."""
    store = Store(tmp_path / "traces.sqlite")
    with Recorder(store, "test", "serve", content=True) as recorder:
        stop = record(engine, recorder)
        async with engine.backend.server() as vllm:
            app = create_app(engine, Registry(), parts=ServerParts(vllm=vllm, recorder=recorder))
            async with listening(app, shutdown_timeout=1) as port:
                client = Client(f"http://127.0.0.1:{port}")
                first = await client.chat(QUESTION, tools=TOOLS)
                answer = echoed(first.choices[0].message)
                results = [
                    {"role": "tool", "tool_call_id": call["id"], "content": "816"}
                    for call in answer.get("tool_calls") or ()
                ]
                second = await client.chat(QUESTION, answer, *results, NEXT, tools=TOOLS)
                await client.openai.close()
        stop()
    assert recorder.recording is not None
    entries = list(catalog.entries(store.path, recorder.recording))
    spans = [each for each in entries if each["kind"] == "span"]
    runs = {each["attributes"]["gen_ai.response.id"] for each in spans if each["parent"] is None}
    assert runs == {first.id, second.id}
    turns = [each["attributes"] for each in spans if each["name"].startswith("chat ")]
    for turn, told in zip(turns, (first, second), strict=True):
        assert turn["caesura.request.id"] == told.id
        assert turn["gen_ai.usage.output_tokens"] == told.usage.completion_tokens
    assert turns[1]["caesura.follow_up.outcome"] == "spliced"
    assert turns[1]["gen_ai.usage.cache_read.input_tokens"] > 0
    lanes = {name for each in entries if each["kind"] == "lanes" for name in each["request"]}
    for told in (first, second):
        assert any(name.startswith(told.id) for name in lanes)


def echoed(message: Any) -> Any:
    return message.model_dump(exclude_none=True, exclude={"parsed"})


def cached(completion: Any) -> int:
    return int(completion.usage.prompt_tokens_details.cached_tokens)


@pytest.mark.parametrize("streams", [False, True])
async def test_the_result_of_a_clients_tool_is_spliced(client: Client, streams: bool) -> None:
    if streams:
        message = await client.streamed(QUESTION, tools=TOOLS)
    else:
        message = (await client.chat(QUESTION, tools=TOOLS)).choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "816"}
    answer = await client.chat(QUESTION, echoed(message), result, tools=TOOLS)
    assert await client.follow_ups() == {"unchanged": 1}
    assert "816" in answer.choices[0].message.content
    again = await client.chat(
        QUESTION, echoed(message), result, echoed(answer.choices[0].message), NEXT, tools=TOOLS
    )
    assert await client.follow_ups() == {"unchanged": 2}
    assert again.choices[0].finish_reason == "stop"


async def test_a_template_that_drops_thinking_costs_no_recomputation(
    engine: VllmEngine, settled: Any
) -> None:
    async with served(over("deepseek_r1_distill", engine)) as client:
        await _check_splice_of_thinking(client)


async def _check_splice_of_thinking(client: Client) -> None:
    hot: Any = {"temperature": 2, "seed": 7, "max_tokens": 100}
    first = await client.chat({"role": "user", "content": "Hello!"}, **hot)
    message = echoed(first.choices[0].message)
    second = await client.chat({"role": "user", "content": "Hello!"}, message, NEXT)
    assert await client.follow_ups() == {"unchanged": 1}
    whole = first.usage.prompt_tokens + first.usage.completion_tokens
    assert cached(second) == (whole - 1) // CPU_BLOCK_SIZE * CPU_BLOCK_SIZE
    changed = {**message, "content": message["content"] + "!"}
    third = await client.chat({"role": "user", "content": "Hello!"}, changed, NEXT)
    assert await client.follow_ups() == {"unchanged": 1, "changed": 1}
    assert cached(third) < cached(second)


FORMS: dict[str, Any] = {
    "left out": {"content": ANSWER},
    "apart": {"content": ANSWER, "reasoning": THOUGHT},
    "apart, by the older name": {"content": ANSWER, "reasoning_content": THOUGHT},
    "in the text": {"content": WRITTEN},
}


@pytest.mark.parametrize("streams", [False, True])
async def test_thinking_is_told_apart_and_spliced(
    engine: VllmEngine, settled: Any, streams: bool
) -> None:
    """By default, with a template that does not open the thinking in the prompt."""
    forced: Any = {"structured_outputs": {"choice": [WRITTEN]}, "return_token_ids": True}
    async with served(over("qwen3", engine, thinks=True)) as client:
        if streams:
            message = await client.streamed(QUESTION, extra_body=forced)
        else:
            first = await client.chat(QUESTION, extra_body=forced)
            message = first.choices[0].message
            assert first.usage.completion_tokens_details.reasoning_tokens > 5
        assert (message.reasoning, message.content) == (THOUGHT, ANSWER)
        for number, form in enumerate(FORMS.values(), 1):
            history = [QUESTION, {"role": "assistant", **form}, NEXT]
            second = await client.chat(*history, extra_body=forced)
            assert await client.follow_ups() == {"unchanged": number}
            prompt = engine.tokenizer.decode(second.prompt_token_ids)
            assert WRITTEN in prompt
            said = second.choices[0].message
            assert (said.reasoning, said.content) == (THOUGHT, ANSWER)
        other = {"role": "assistant", "content": ANSWER, "reasoning": "Something else."}
        await client.chat(QUESTION, other, NEXT)
        assert await client.follow_ups() == {"unchanged": len(FORMS), "changed": 1}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("parser", ["qwen3", "glm45"])
async def test_an_operators_own_parser_of_reasoning_is_spliced_behind(
    engine: VllmEngine, settled: Any, parser: str, streams: bool
) -> None:
    """vLLM's `glm45` looks for the last marker in a prompt, which is in an earlier answer here."""
    thought, answer = "Is it four?", "It is four."
    written = f"<think>\n{thought}\n</think>\n\n{answer}"
    forced: Any = {"structured_outputs": {"choice": [written]}, "return_token_ids": True}
    over_it = over("qwen3", engine, thinks=True)
    over_it.reasoning_parser = parser

    async def ask(client: Client, *messages: Any) -> Any:
        if streams:
            return await client.streamed(*messages, extra_body=forced)
        return (await client.chat(*messages, extra_body=forced)).choices[0].message

    async with served(over_it) as client:
        first = await ask(client, QUESTION)
        assert (first.reasoning.strip(), first.content.strip()) == (thought, answer)
        forms = (
            {"content": first.content},
            {"content": first.content, "reasoning": first.reasoning},
            {"content": answer, "reasoning_content": thought},
            {"content": written},
        )
        for number, form in enumerate(forms, 1):
            said = await ask(client, QUESTION, {"role": "assistant", **form}, NEXT)
            assert await client.follow_ups() == {"unchanged": number}
            assert (said.reasoning.strip(), said.content.strip()) == (thought, answer)


async def test_requests_that_shape_the_prompt_otherwise_are_left_to_the_server(
    client: Client,
) -> None:
    first = await client.chat(QUESTION)
    message = echoed(first.choices[0].message)
    for extra in ({"echo": True}, {"documents": []}, {"add_generation_prompt": False}):
        await client.chat(QUESTION, message, NEXT, extra_body=extra)
    assert await client.follow_ups() == {"parameter": 3}


async def test_several_answers_to_a_follow_up_are_spliced(client: Client) -> None:
    first = await client.chat(QUESTION)
    message = echoed(first.choices[0].message)
    both = await client.chat(QUESTION, message, NEXT, n=2, temperature=1)
    assert await client.follow_ups() == {"unchanged": 1}
    said = echoed(both.choices[0].message)
    await client.chat(QUESTION, message, NEXT, said, NEXT)
    assert sum((await client.follow_ups()).values()) == 2
    assert (await client.follow_ups())["unchanged"] == 1


async def test_the_tokens_that_a_client_asks_for_are_the_spliced_ones(client: Client) -> None:
    """Each turn begins with all tokens of the one before, as trainers need them."""
    ids: Any = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    messages: list[Any] = [QUESTION]
    seen: list[int] = []
    for follow in ([], [NEXT], [NEXT]):
        messages += follow
        answer = await client.chat(*messages, tools=TOOLS, logprobs=True, extra_body=ids)
        (choice,) = answer.choices
        sampled = choice.token_ids
        assert answer.prompt_token_ids[: len(seen)] == seen
        assert [each.token for each in choice.logprobs.content] == [
            f"token_id:{i}" for i in sampled
        ]
        seen = [*answer.prompt_token_ids, *sampled]
        messages.append(rewritten(choice.message))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "816"}
            for call in choice.message.tool_calls or ()
        ]
    assert await client.follow_ups() == {"unchanged": 2}


def rewritten(message: Any) -> Any:
    """Return a message as clients in JavaScript write it again."""
    sent = echoed(message)
    for call in sent.get("tool_calls", ()):
        read = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(read, separators=(",", ":"), ensure_ascii=False)
    return sent


async def test_prompt_logprobs_are_those_of_the_spliced_prompt(client: Client) -> None:
    """vLLM computes the whole prompt for them; the prefix cache has none."""
    first = await client.chat(QUESTION, tools=TOOLS, extra_body={"return_token_ids": True})
    message = rewritten(first.choices[0].message)
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "816"}
    asked: Any = {"prompt_logprobs": 0, "return_token_ids": True}
    second = await client.chat(QUESTION, message, result, tools=TOOLS, extra_body=asked)
    assert await client.follow_ups() == {"unchanged": 1}
    whole = [*first.prompt_token_ids, *first.choices[0].token_ids]
    prompt = second.prompt_token_ids
    assert prompt[: len(whole)] == whole
    assert second.prompt_logprobs[0] is None and len(second.prompt_logprobs) == len(prompt)
    for token, told in zip(prompt[1:], second.prompt_logprobs[1:], strict=True):
        assert str(token) in told and told[str(token)]["logprob"] <= 0
    completed = await client.openai.completions.create(
        model="caesura-tiny", prompt=prompt, max_tokens=1, extra_body={"prompt_logprobs": 0}
    )
    alone: Any = completed.choices[0]
    for told, expected in zip(second.prompt_logprobs[1:], alone.prompt_logprobs[1:], strict=True):
        for token, each in expected.items():
            assert told[token]["logprob"] == pytest.approx(each["logprob"], abs=1e-3)


@pytest.mark.parametrize("single", [True, False])
async def test_one_call_alone_is_spliced_where_it_is_all(client: Client, single: bool) -> None:
    answer = await client.chat(QUESTION, tools=TOOLS, parallel_tool_calls=not single)
    message = rewritten(answer.choices[0].message)
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "816"}
    said = await client.chat(QUESTION, message, result, tools=TOOLS, parallel_tool_calls=not single)
    assert await client.follow_ups() == {"unchanged": 1}
    assert said.choices[0].message.content


async def test_an_answer_that_a_stop_text_ended_is_not_remembered(client: Client) -> None:
    asked_nowhere_else = {"role": "user", "content": "Hello, who are you, if not the end?"}
    first = await client.chat(asked_nowhere_else, stop=["e"])
    message = echoed(first.choices[0].message)
    await client.chat(asked_nowhere_else, message, NEXT)
    assert await client.follow_ups() == {"unknown": 1}


CHILD: Any = {"role": "user", "content": "Please tell me exactly what 96 * 34 is, will you?"}


async def asked(client: Client, question: Any, salt: Any, **headers: str) -> Any:
    """Return the call with which an answer ends, so that its KV is kept."""
    answer = await client.chat(question, tools=TOOLS, extra_body=salt, extra_headers=headers)
    message = answer.choices[0].message
    assert message.tool_calls
    return message


@pytest.mark.parametrize("named", ["Caesura", "X-Dynamo"])
async def test_the_end_frees_the_blocks_of_a_session_and_its_sub_agents(
    client: Client, engine: VllmEngine, named: str
) -> None:
    """A request of any prompt ends the session, and the blocks that others share stay."""
    name, parent = (
        ("Caesura-Session", "Caesura-Parent")
        if named == "Caesura"
        else ("X-Dynamo-Session-ID", "X-Dynamo-Parent-Session-ID")
    )
    before, salt = await engine.state(), {"cache_salt": named}
    other = await asked(client, QUESTION, salt, **{name: "other"})
    alone = (await engine.state())["blocks_paused"] - before["blocks_paused"]
    assert alone > 0
    await asked(client, QUESTION, salt, **{name: "main"})
    await asked(client, CHILD, salt, **{name: "child", parent: "main"})
    kept = await engine.state()
    assert kept["retained"] == before["retained"] + 3
    assert kept["blocks_paused"] > before["blocks_paused"] + alone
    final = {name: "main", f"{named}-Session-Final": "true"}
    await client.chat({"role": "user", "content": "."}, max_tokens=1, extra_headers=final)
    after = await engine.state()
    assert after["retained"] == before["retained"] + 1
    assert after["blocks_paused"] == before["blocks_paused"] + alone
    assert after["blocks_free"] + after["blocks_paused"] == after["blocks_total"]
    result = {"role": "tool", "tool_call_id": other.tool_calls[0].id, "content": "816"}
    answer = await client.chat(QUESTION, echoed(other), result, tools=TOOLS, extra_body=salt)
    assert cached(answer) > 0
    released = (await client.openai._client.get("/metrics")).text
    assert 'why="session end"' in released
