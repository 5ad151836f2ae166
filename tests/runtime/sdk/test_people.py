"""People in the SDK: what a session waits for, callbacks, and what the engine is told."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.intercept.pause_hints import PauseHint
from caesura.runtime.errors import UsageError
from caesura.runtime.run.context import pauses_of
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools import tool
from caesura.tools.calculator.tool import calculator
from caesura.tools.people import Pending, People, PeopleSettings, make_ask_user, with_approval
from tests.kit.waiting import until


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Agent]:
    """Makes agents whose files are the test's own."""
    file = tmp_path / "caesura.toml"
    file.write_text(f'[data]\ndirectory = "{tmp_path}"\n')

    def make(*arguments: Any, **options: Any) -> Agent:
        return Agent(*arguments, config=file, **options)

    return make


async def test_sessions_show_what_is_pending_and_take_answers(
    configured: Callable[..., Agent],
) -> None:
    script = [call("ask_user", question="City?"), call("pay", euro=5), call("pay", euro=9), say("")]
    agent = configured(ScriptedEngine(script), ["ask_user", pay])
    async with agent, agent.session() as session, agent.session() as other:
        task = asyncio.create_task(session.run("Go."))

        async def next_one() -> Pending:
            await until(lambda: session.pending)
            assert other.pending == ()
            return session.pending[0]

        item = await next_one()
        await session.answer(item.id, "Oslo")
        with pytest.raises(UsageError, match="already answered"):
            await session.answer(item.id, "Rome")
        await session.approve((await next_one()).id)
        await session.deny((await next_one()).id, "enough")
        answer = await task
    assert [result.content for _, result in answer.calls] == [
        "Oslo",
        "paid 5",
        "error: a person denied this call of pay: enough",
    ]


@tool(approval=True)
def pay(euro: int) -> str:
    """Pay."""
    return f"paid {euro}"


async def test_a_run_in_which_nobody_could_approve_a_call_is_refused(
    configured: Callable[..., Agent],
) -> None:
    engine = ScriptedEngine([call("pay", euro=5)])
    async with configured(engine, ["calculator", pay]) as agent:
        message = r"calls of pay need a person's approval.*on_approval.*session.approve"
        with pytest.raises(UsageError, match=message):
            await agent.run("Go.")
        with pytest.raises(UsageError, match=message):
            async for _ in agent.stream("Go."):
                pass
    assert not engine.sessions


async def test_a_tool_with_people_of_its_own_is_not_refused(
    configured: Callable[..., Agent],
) -> None:
    others = People(on_approval=lambda item: True)
    engine = ScriptedEngine([call("pay", euro=5), say("")])
    async with configured(engine, [with_approval(pay, others)]) as agent:
        answer = await agent.run("Go.")
    assert [result.content for _, result in answer.calls] == ["paid 5"]


def test_run_sync_refuses_it_too(configured: Callable[..., Agent]) -> None:
    agent = configured(ScriptedEngine(), [pay])
    with pytest.raises(UsageError, match="calls of pay need a person's approval"):
        agent.run_sync("Go.")


async def test_the_log_says_how_to_decide_where_there_is_no_callback(
    configured: Callable[..., Agent], caplog: pytest.LogCaptureFixture
) -> None:
    engine = ScriptedEngine([call("pay", euro=5), call("ask_user", question="City?"), say("")])
    async with configured(engine, ["ask_user", pay]) as agent, agent.session() as session:
        task = asyncio.create_task(session.run("Go."))
        for text, settle in (("approve", session.approve), ("answer", None)):
            begin = f"session.{text}('"
            await until(
                lambda begin=begin: any(begin in each.getMessage() for each in caplog.records)
            )
            [item] = session.pending
            assert f"session.{text}('{item.id}'" in caplog.records[-1].getMessage()
            await (settle(item.id) if settle else session.answer(item.id, "Oslo"))
        answer = await task
    assert [result.content for _, result in answer.calls] == ["paid 5", "Oslo"]


def test_run_sync_asks_by_a_plain_callback(configured: Callable[..., Agent]) -> None:
    names: list[str] = []

    def answer(item: Pending) -> str:
        names.append(threading.current_thread().name)
        return "Oslo"

    engine = ScriptedEngine([call("ask_user", question="City?"), say("Oslo it is.")])
    agent = configured(engine, ["ask_user"], on_question=answer)
    assert agent.run_sync("Go.").text == "Oslo it is."
    agent.close()
    assert names
    assert names[0].startswith("tool ")


async def test_an_approval_by_callback(configured: Callable[..., Agent]) -> None:
    @tool(approval=True)
    async def erase(path: str) -> str:
        """Erase a file."""
        return f"erased {path}"

    async def approve(item: Pending) -> bool | str:
        return "not that one" if "important" in item.arguments else True

    script = [call("erase", path="scratch"), call("erase", path="important"), say("")]
    async with configured(ScriptedEngine(script), [erase], on_approval=approve) as agent:
        answer = await agent.run("Tidy up.")
    assert [result.content for _, result in answer.calls] == [
        "erased scratch",
        "error: a person denied this call of erase: not that one",
    ]


async def test_a_session_that_is_closed_asks_no_more(configured: Callable[..., Agent]) -> None:
    engine = ScriptedEngine([call("ask_user", question="City?")])
    async with configured(engine, ["ask_user"]) as agent:
        session = agent.session()
        task = asyncio.create_task(session.run("Go."))
        await until(lambda: session.pending)
        await session.aclose()
        assert session.pending == ()
        with pytest.raises(UsageError, match="closed"):
            await task


def test_hints_are_made_for_tools_that_wait_for_people_or_say_how_long() -> None:
    @tool(approval=True, timeout_seconds=10, expected_seconds=2)
    async def pay() -> None:
        """Pay."""

    @tool(expected_seconds=400)
    async def render() -> None:
        """Render."""

    @tool(waits_for_person=True, timeout_seconds=20)
    async def sign() -> None:
        """Sign."""

    settings = PeopleSettings.model_validate(
        {"approval_deadline_seconds": 100, "expected_seconds": 30}
    )
    people = People(None, settings)
    tools = [make_ask_user(people), with_approval(pay, people), pay, render, sign, calculator]
    assert pauses_of(tools[:2]) == {
        "ask_user": PauseHint(30.0, 3660.0, person=True),
        "pay": PauseHint(32.0, 110.0, person=True),
    }
    assert pauses_of(tools[2:]) == {
        "pay": PauseHint(2.0, None, person=True),
        "render": PauseHint(400.0),
        "sign": PauseHint(20.0, 20.0, person=True),
    }


async def test_the_engine_is_told_when_a_session_opens(configured: Callable[..., Agent]) -> None:
    engine = ScriptedEngine([say("Hello.")])
    async with configured(engine, ["ask_user", "calculator"]) as agent:
        await agent.run("Hello?")
    assert list(engine.sessions[0].spec.pauses) == ["ask_user"]


async def test_the_example_answers_itself_where_there_is_no_terminal(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "08_ask_first.py"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(example)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
    )
    output = (await child.communicate())[0].decode()
    assert child.returncode == 0
    assert "a callback answers the question" in output
    assert output.endswith("All is booked.\nbooked: Oslo\n")
    assert (tmp_path / "caesura" / "people.sqlite").exists()
