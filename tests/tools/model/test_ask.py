"""The ask_model tool against a server: what it sends, what it returns, what it forecasts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from caesura.tools import Dispatcher, Registry, ToolCall
from caesura.tools.model import ask_model
from caesura.tools.services import SetupError

from .experts import Expert

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def expert(unused_tcp_port: int) -> AsyncIterator[Expert]:
    served = Expert()
    runner = web.AppRunner(served.app(), handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    served.url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    yield served
    await runner.cleanup()


async def asked(expert: Expert, times: int = 1, **settings: Any) -> tuple[list[float], str]:
    """Ask several times in one session; return the forecasts and the last answer."""
    forecasts: list[float] = []
    tool = ask_model(expert.url, "expert", **settings)
    async with Dispatcher(Registry([tool])) as dispatcher:
        for _ in range(times):
            arguments = json.dumps({"question": "Which colour has the sky?"})
            call = ToolCall("c", tool.name, arguments)
            result = await dispatcher.start(
                call, on_expect=lambda call, seconds: forecasts.append(seconds)
            )
    return forecasts, result.content


async def test_a_question_and_its_answer(using: Any, expert: Expert) -> None:
    call = await using(
        "ask_model",
        allow_private=True,
        url=expert.url,
        model="expert",
        system="Be brief.",
        max_tokens=20,
        temperature=0.5,
    )
    result = await call(question="Which colour has the sky?")
    assert (result.content, result.error) == ("It is blue.", None)
    assert expert.asked == [
        {
            "model": "expert",
            "max_tokens": 20,
            "temperature": 0.5,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Which colour has the sky?"},
            ],
            "stream": False,
        }
    ]


async def test_the_key_is_sent(expert: Expert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPERT_KEY", "secret")
    await asked(expert, api_key_env="EXPERT_KEY")
    assert expert.keys == ["Bearer secret"]


@pytest.mark.parametrize(
    ("message", "finish", "status", "content"),
    [
        ({"content": "It is"}, "length", 200, "It is [cut: the answer has reached its limit]"),
        ({"content": None}, "length", 200, "error: the model reached its limit of tokens"),
        ({"content": None}, "stop", 200, "error: the model's server answered without a text"),
        ({"content": " "}, "stop", 200, "error: the model's server answered without a text"),
        (None, "stop", 200, "error: the model's server answered without a text"),
        ({}, "stop", 500, "error: 127.0.0.1 answered 500"),
        ({}, "stop", 404, "error: 127.0.0.1 answered 404"),
    ],
)
async def test_what_the_asking_model_sees_of_other_answers(
    expert: Expert, message: Any, finish: str, status: int, content: str
) -> None:
    expert.message, expert.finish_reason, expert.status = message, finish, status
    assert (await asked(expert))[1].startswith(content)


async def test_a_cancelled_call_closes_its_connection(expert: Expert) -> None:
    expert.released.clear()
    tool = ask_model(expert.url, "expert")
    async with Dispatcher(Registry([tool])) as dispatcher:
        call = dispatcher.start(ToolCall("c", "ask_model", '{"question": "Well?"}'))
        await expert.came.wait()
        call.cancel()
        await asyncio.wait([call])
        await expert.left.wait()


async def test_a_call_forecasts_its_answer_by_earlier_ones_at_this_load(expert: Expert) -> None:
    forecasts, _ = await asked(expert, times=3)
    assert len(forecasts) == 2  # nothing was known before the first answer
    assert all(0 < seconds < 60 for seconds in forecasts)


async def test_the_expected_time_is_the_first_forecast(expert: Expert) -> None:
    forecasts, _ = await asked(expert, times=2, expected_seconds=30.0)
    assert forecasts[0] == 30.0
    assert 19.9 < forecasts[1] < 30.0


async def test_an_engine_without_metrics_gives_no_forecast(expert: Expert) -> None:
    expert.metrics = None
    assert await asked(expert, times=2, expected_seconds=30.0) == ([], "It is blue.")


async def test_a_file_says_how_long_answers_take(expert: Expert, tmp_path: Path) -> None:
    expert.metrics_read.set()
    file = tmp_path / "forecasts.json"
    settings = {"read_load": False, "forecast_file": file}
    assert (await asked(expert, **settings))[0] == []  # a run may write the file later
    file.write_text('{"models": {"expert": {"seconds": 7.5}, "other": {"seconds": 1}}}')
    assert (await asked(expert, **settings))[0] == [7.5]
    file.write_text('{"models": {"other": {"seconds": 1}}}')
    assert (await asked(expert, **settings))[0] == []


@pytest.mark.parametrize(
    "text", ["", "[]", '{"models": {"expert": 3}}', '{"models": {"expert": {"seconds": -1}}}']
)
async def test_a_file_that_is_none_is_told_at_the_start(tmp_path: Path, text: str) -> None:
    file = tmp_path / "forecasts.json"
    file.write_text(text)
    with pytest.raises(SetupError, match="forecast_file"):
        ask_model("http://127.0.0.1:9/v1", "expert", forecast_file=file)


async def test_a_tool_of_another_name_takes_its_own_parameter(expert: Expert) -> None:
    tool = ask_model(expert.url, "expert", name="chemist", parameter="query", about="Ask one.")
    assert (tool.name, tool.description) == ("chemist", "Ask one.")
    async with Dispatcher(Registry([tool])) as dispatcher:
        result = await dispatcher.run(ToolCall("c", "chemist", '{"query": "Well?"}'))
    assert result.content == "It is blue."


async def test_a_prompt_around_the_question_and_tools_of_the_server(expert: Expert) -> None:
    await asked(expert, prompt="Answer {question} Be brief.", server_tools=["calculator"])
    (body,) = expert.asked
    assert body["messages"][-1]["content"] == "Answer Which colour has the sky? Be brief."
    assert body["server_tools"] == ["calculator"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "https://example.com/v1", "model": "m", "prompt": "Answer."}, "lacks {question}"),
        ({"model": "expert"}, "has no url"),
        ({"url": "https://example.com/v1"}, "has no model"),
        ({"url": "http://127.0.0.1:8001/v1", "model": "expert"}, "allow_private = true"),
        ({"url": "https://example.com/v1", "model": "m", "api_key_env": "NO_SUCH"}, "NO_SUCH"),
        ({"url": "https://example.com/v1", "model": "m", "max_tokens": 0}, "max_tokens"),
    ],
)
async def test_wrong_settings_are_told_at_the_start(
    using: Any, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SetupError, match=problem):
        await using("ask_model", **settings)
