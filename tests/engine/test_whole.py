"""From the SDK and from an OpenAI client down to the engine, with the bundled model."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from io import StringIO
from typing import Any

import pytest
from openai import AsyncOpenAI
from rich.console import Console

from caesura import Agent, Sampling, tool
from caesura.runtime.cli.demo import PRICES, QUESTIONS, REPLY, TOUR, Stop, ask_all, tour
from caesura.runtime.errors import UsageError
from caesura.runtime.events import CallFinished, ToolReturned, TurnEnded
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from caesura.tools.clock import clock

pytestmark = pytest.mark.engine

Settled = Callable[[], Any]
CALCULATOR = calculator.spec()
QUESTION: Any = [{"role": "user", "content": "What is 48 * 17?"}]


@pytest.fixture
async def client(engine: VllmEngine) -> AsyncIterator[AsyncOpenAI]:
    async with (
        engine.backend.server() as vllm,
        listening(
            create_app(engine, Registry([calculator, clock]), parts=ServerParts(vllm=vllm))
        ) as port,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as made,
    ):
        yield made


async def test_the_sdk(engine: VllmEngine, settled: Settled) -> None:
    @tool
    def price(item: str) -> int:
        """Look up the price of an item."""
        return {"lamp": 34}[item]

    agent = Agent(engine, ["calculator", price], sampling=Sampling(temperature=0))
    answer = await agent.run("How much do 7 lamps cost?")
    assert [call.name for call, _ in answer.calls] == ["price", "calculator"]
    assert "238" in answer.text
    assert answer.usage.turns == 3
    assert answer.usage.cached_tokens > 0


async def test_parallel_calls_overlap_decoding(engine: VllmEngine, settled: Settled) -> None:
    """The first call of a turn is at work before the turn has ended."""
    started: list[str] = []

    @tool
    async def weather(city: str) -> str:
        """Tell the weather in a city."""
        started.append(city)
        return "17 degrees, light rain"

    agent = Agent(engine, [weather], sampling=Sampling(temperature=0))
    seen: list[Any] = []
    async for event in agent.stream("What is the weather in Paris and in Rome?"):
        seen.append((event, len(started)))
    turn_end = next(i for i, (event, _) in enumerate(seen) if isinstance(event, TurnEnded))
    assert seen[turn_end][1] >= 1, "nothing had started when the turn ended"
    assert sorted(started) == ["Paris", "Rome"]
    assert sum(isinstance(event, CallFinished) for event, _ in seen) == 2
    assert sum(isinstance(event, ToolReturned) for event, _ in seen) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_client_with_a_server_tool(
    client: AsyncOpenAI, settled: Settled, stream: bool
) -> None:
    options: dict[str, Any] = {
        "model": "caesura-tiny",
        "messages": QUESTION,
        "temperature": 0,
        "extra_body": {"server_tools": ["calculator"]},
    }
    if not stream:
        whole = await client.chat.completions.create(**options)
        assert "816" in (whole.choices[0].message.content or "")
        assert whole.choices[0].finish_reason == "stop"
        assert whole.choices[0].message.tool_calls is None
        assert whole.model_extra["caesura"]["calls"][0]["content"] == "816"
        return
    text, reason = "", None
    async for chunk in await client.chat.completions.create(stream=True, **options):
        delta = chunk.choices[0].delta
        assert not delta.tool_calls
        text += delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    assert "816" in text
    assert reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_client_with_a_client_tool(
    client: AsyncOpenAI, settled: Settled, stream: bool
) -> None:
    options: dict[str, Any] = {
        "model": "caesura-tiny",
        "messages": list(QUESTION),
        "temperature": 0,
        "tools": [CALCULATOR],
    }
    if stream:
        async with client.chat.completions.stream(**options) as events:
            message = (await events.get_final_completion()).choices[0].message
    else:
        message = (await client.chat.completions.create(**options)).choices[0].message
    (call,) = message.tool_calls or ()
    assert call.function.name == "calculator"
    assert "48" in call.function.arguments
    options["messages"] += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "816"},
    ]
    followed = await client.chat.completions.create(**options)
    assert "816" in (followed.choices[0].message.content or "")


async def test_openai_client_with_a_forced_server_tool(
    client: AsyncOpenAI, settled: Settled
) -> None:
    whole = await client.chat.completions.create(
        model="caesura-tiny",
        messages=QUESTION,
        temperature=0,
        tool_choice="required",
        parallel_tool_calls=False,
        extra_body={"server_tools": ["calculator"]},
    )
    calls = whole.model_extra["caesura"]["calls"]
    assert [call["content"] for call in calls] == ["816"]
    assert "816" in (whole.choices[0].message.content or "")


async def test_openai_client_with_choices_of_a_schema_and_logprobs(
    client: AsyncOpenAI, settled: Settled
) -> None:
    schema = {
        "type": "object",
        "properties": {"result": {"type": "integer", "minimum": 0, "maximum": 9999}},
        "required": ["result"],
        "additionalProperties": False,
    }
    whole = await client.chat.completions.create(
        model="caesura-tiny",
        messages=QUESTION,
        seed=1,
        n=3,
        tool_choice="none",
        response_format={"type": "json_schema", "json_schema": {"name": "one", "schema": schema}},
        logprobs=True,
        top_logprobs=2,
        extra_body={"server_tools": ["calculator"]},
    )
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    for choice in whole.choices:
        assert choice.message.content is not None and choice.logprobs is not None
        assert list(json.loads(choice.message.content)) == ["result"]
        tokens = choice.logprobs.content or []
        assert "".join(token.token for token in tokens) == choice.message.content
        assert all(len(token.top_logprobs) == 2 for token in tokens)


async def test_a_client_that_leaves_frees_its_request(
    client: AsyncOpenAI, settled: Settled
) -> None:
    stream = await client.chat.completions.create(
        model="caesura-tiny",
        messages=[{"role": "user", "content": "Hello, who are you?"}],
        stream=True,
        extra_body={"server_tools": ["calculator"]},
    )
    async for _ in stream:
        break
    await stream.close()
    await asyncio.wait_for(settled(), 60)


ANSWERS = {
    "What is 48 * 17?": r"The answer is 816\.",
    "I have 12 boxes of 7 eggs. How many eggs do I have?": r"There are 84 eggs\.",
    "What is 1250 / 8 and what is 391 + 46?": r"1250/8 is 156\.25\. 391\+46 is 437\.",
    "How much do 7 lamps cost?": rf"7 lamps cost {7 * PRICES['lamp']}\.",
    "What is the weather in Paris and in Rome?": (
        r"The weather in Paris is (\d+ degrees, [a-z ]+)\. "
        r"The weather in Rome is (\d+ degrees, [a-z ]+)\."
    ),
    "How many people live in Oslo?": r"717710 people live in Oslo\.",
    "What time is it in Tokyo?": r"It is (\d\d:\d\d) in Tokyo\.",
    "Write a sentence about 15 boxes of 24 pencils.": r"15 boxes of 24 pencils hold 360 pencils\.",
    "Write a sentence about 9 bags of 13 apples.": r"9 bags of 13 apples hold 117 apples\.",
    "What is 7 / 0?": r"The calculator tool reported an error: division by zero\.",
    "Who are you?": r"I am caesura-tiny, a very small language model that calls tools\.",
    "What is the weather in Atlantis?": (
        r"The weather tool reported an error: unknown city Atlantis\."
    ),
}
"""What the demo's questions must be answered with; the groups stand in the tools' results."""


async def test_every_answer_of_the_demo_is_right(engine: VllmEngine, settled: Settled) -> None:
    assert set(QUESTIONS) == set(ANSWERS)
    written = StringIO()
    for row in await ask_all(engine, Console(file=written, width=200)):
        assert row.error is None
        answer = re.fullmatch(ANSWERS[row.question], row.text)
        assert answer is not None, f"{row.question} {row.text}"
        for told in answer.groups():
            assert re.search(rf"result .*{told}", written.getvalue()), row.question


def checked(stop: Stop, result: str, answer: str) -> bool:
    """Tell whether a stop's answer is right and says what the tool returned."""
    match stop.tool:
        case "calculator":
            return (result, answer) == ("65536", "The answer is 65536.")
        case "clock":
            return answer == f"It is {result.split()[1][:5]} in Tokyo."
        case "search":
            return "Pantheon" in result and "built under the emperor Hadrian" in answer
        case "ask_user":
            return (result, answer) == (REPLY, f"You answered: {REPLY}.")
        case "environment":
            task = result.rpartition("Your task is to: ")[2]
            return bool(task) and answer.rstrip(".").endswith(task.split(".")[0])
        case _:
            made = re.search(r"/artifacts/\w+\.\w+", result)
            return made is not None and answer.endswith(f" is at {made[0]}.")


async def test_every_answer_of_the_tour_is_right(engine: VllmEngine, settled: Settled) -> None:
    written = StringIO()
    await tour(engine, TOUR, Console(file=written, width=10_000))
    text = written.getvalue()
    visited = []
    for stop in TOUR:
        part = text.partition(f"\n{stop.question}\n")[2]
        told = re.match(r"  call .*\n  result (.*)\n  answer (.*)\n", part)
        if told is None:
            # Some tools need packages that are not installed everywhere.
            assert re.search(rf"^{stop.tool}: .*pip install", text, re.MULTILINE), part[:300]
            continue
        visited.append(stop.tool)
        assert checked(stop, told[1], told[2]), f"{stop.question} {told[0]}"
    assert {"calculator", "clock", "search", "ask_user"} <= set(visited)


async def test_a_forked_process_is_told_that_the_engine_is_not_its_own(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_started_in", 0)
    with pytest.raises(UsageError, match="was forked from process 0 after that had started"):
        await Agent(engine).run("What is 48 * 17?")
