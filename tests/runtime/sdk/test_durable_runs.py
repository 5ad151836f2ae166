"""Runs that outlive their process: nothing is decoded twice, and no call is made twice."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, ScriptedEngine, Session, UsageError, tool
from caesura.runtime.events import RunEnded, ToolReturned
from caesura.runtime.testing import Item, call, calls, say
from tests.kit.waiting import until

CHILD = Path(__file__).with_name("killed_session.py")
END = "It is done, as far as I know."


async def killed(directory: Path, when: str, name: str) -> str:
    """Run an agent that dies within its run; return what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), str(directory), when, name),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{CHILD.parents[3]}:{os.environ.get('PYTHONPATH', '')}"},
    )
    async with asyncio.timeout(120):
        said, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    return said.decode().strip()


def lines(directory: Path, name: str) -> int:
    file = directory / name
    return len(file.read_text().splitlines()) if file.exists() else 0


def child(directory: Path, when: str, name: str) -> Any:
    """Return the child's module, as the process that goes on has it."""
    import importlib.util

    sys.argv[1:], before = [str(directory), when, name], sys.argv[1:]
    try:
        spec = importlib.util.spec_from_file_location("killed_session", CHILD)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.argv[1:] = before
    return module


def going_on(directory: Path, script: list[Item], name: str, **options: Any) -> Session:
    """Return the session that the child left."""
    tools = child(directory, "never", name).TOOLS
    config = directory / "caesura.toml"
    agent = Agent(ScriptedEngine(script), tools, config=config, **options)
    return agent.session(id="u", store=directory / "sessions.sqlite")


@pytest.mark.parametrize(("when", "looked"), [("before", 1), ("after", 2)])
async def test_a_call_that_may_be_repeated_is_made_again(
    tmp_path: Path, when: str, looked: int
) -> None:
    await killed(tmp_path, when, "look")
    async with going_on(tmp_path, [say(END)], "look") as session:
        assert session.is_under_way and session.messages[-1]["content"] == "I pay."
        answer = await session.run()
        assert (answer.text, answer.calls[0][1].content) == (END, "paid")
        assert not session.is_under_way
    assert lines(tmp_path, "looked") == looked


async def test_a_call_that_may_have_been_made_is_left_to_a_person(tmp_path: Path) -> None:
    await killed(tmp_path, "after", "pay")
    asked = []

    def decide(item: Any) -> str:
        asked.append((item.tool, item.question))
        return "it was paid"

    async with going_on(tmp_path, [say(END)], "pay", on_approval=decide) as session:
        answer = await session.run("Pay.")  # the same prompt goes on too
    assert asked[0][0] == "pay" and "The process ended while this call ran" in asked[0][1]
    assert "it is unknown whether it took effect" in answer.calls[0][1].content
    assert answer.text == END and lines(tmp_path, "paid") == 1


async def test_or_the_model_is_told_that_it_is_unknown(tmp_path: Path) -> None:
    await killed(tmp_path, "before", "transfer")
    async with going_on(tmp_path, [say(END)], "transfer") as session:
        answer = await session.run()
    assert "the process ended while this call of transfer ran" in answer.calls[0][1].content
    assert answer.text == END and lines(tmp_path, "transferred") == 0


async def test_a_run_that_died_while_it_decoded_goes_on_in_its_turn(tmp_path: Path) -> None:
    await killed(tmp_path, "decoding", "look")
    async with going_on(tmp_path, [say(END)], "look") as session:
        events = [event async for event in session.stream()]
        assert isinstance(events[-1], RunEnded) and events[-1].text == END
        assert sum(isinstance(event, ToolReturned) for event in events) == 1
        roles = [each["role"] for each in session.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
    assert lines(tmp_path, "looked") == 1  # its result was known


@pytest.mark.parametrize("early", [True, False])
async def test_an_approval_waits_for_another_process(tmp_path: Path, early: bool) -> None:
    item = await killed(tmp_path, "waiting", "refund")
    async with going_on(tmp_path, [say(END)], "refund") as session:
        assert [(each.id, each.tool) for each in session.pending] == [(item, "refund")]
        if early:
            await session.approve(item)
            assert session.pending == ()
            answer = await session.run()
        else:
            run = asyncio.create_task(session.run())
            await until(lambda: [each.id for each in session.pending if each.state == "open"])
            assert [each.id for each in session.pending] == [item]
            await session.approve(item)
            answer = await run
    assert answer.calls[0][1].content == "paid" and answer.text == END
    assert lines(tmp_path, "refunded") == 1


def test_the_example_goes_on_in_each_process(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "17_sessions.py"
    state = {"XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(CHILD.parents[3] / "src")}
    said = [
        subprocess.run(
            [sys.executable, str(example), *arguments],
            cwd=tmp_path,
            env=os.environ | state,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for arguments in ((), ("talk",))
    ]
    assert "message number 1." in said[0] and said[1].startswith("That was your message number 2.")
    assert 'approved: refund {"order": 7}\nIt is done.' in said[0]


@tool(approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return f"order {order}"


def configured(directory: Path, script: list[Item], tools: list[Any]) -> Agent:
    (directory / "caesura.toml").write_text(f'[data]\ndirectory = "{directory}"\n')
    return Agent(ScriptedEngine(script), tools, config=directory / "caesura.toml")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_run_that_waits_for_a_person_outlives_its_session(tmp_path: Path, how: str) -> None:
    script: list[Item] = [calls(call("refund", order=7), text="I ask."), say("Done.")]
    agent = configured(tmp_path, script, [refund])
    async with agent.session(id="u", store=tmp_path / "s") as session:
        run = asyncio.create_task(session.run("Pay back."))
        await until(lambda: session.pending)
        item = session.pending[0].id
        if how == "cancelled":
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert session.is_under_way
            with pytest.raises(UsageError, match="has not ended, so that it cannot be forked"):
                session.fork()
            with pytest.raises(UsageError, match=r"whose prompt was 'Pay back.': go on"):
                await session.run("Something else.")
    if how == "closed":
        with pytest.raises(UsageError, match=r"closed while a run .* go on with it by run\(\)"):
            await run
    async with agent.session(id="u", store=tmp_path / "s") as session:
        assert [each.id for each in session.pending] == [item]
        await session.approve(item)
        answer = await session.run()
    assert (answer.text, answer.calls[0][1].content) == ("Done.", "order 7")


async def test_a_run_that_has_not_ended_can_be_dropped(tmp_path: Path) -> None:
    script: list[Item] = [say("Hi."), call("refund", order=7), say("Bye.")]
    agent = configured(tmp_path, script, [refund])
    async with agent.session(id="u", store=tmp_path / "s") as session:
        await session.run("Hello.")
        run = asyncio.create_task(session.run("Pay back."))
        await until(lambda: session.pending)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        session.rewind()
        assert (await session.run("Never mind.")).text == "Bye."
        assert [each["content"] for each in session.messages] == [
            "Hello.",
            "Hi.",
            "Never mind.",
            "Bye.",
        ]


async def test_a_state_goes_on_without_a_store(tmp_path: Path) -> None:
    script: list[Item] = [calls(call("refund", order=7), text="I ask."), say("Done.")]
    agent = configured(tmp_path, script, [refund])
    async with agent.session(user="ada") as session:
        run = asyncio.create_task(session.run("Pay back."))
        await until(lambda: session.pending)
        state = session.state()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    for _ in range(2):  # a state is no more used up than a file that was copied
        agent = configured(tmp_path, [say("Done.")], [refund])
        async with agent.session(state=state) as session:
            run = asyncio.create_task(session.run())
            await until(lambda: session.pending)
            await session.approve(session.pending[0].id)
            assert (await run).text == "Done."


async def test_a_run_goes_on_from_its_messages_where_the_tools_are_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def other() -> str:
        """Do something else."""
        return "else"

    script: list[Item] = [calls(call("refund", order=7), text="I ask.")]
    agent = configured(tmp_path, script, [refund])
    async with agent.session(id="u", store=tmp_path / "s") as session:
        run = asyncio.create_task(session.run("Pay back."))
        await until(lambda: session.pending)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    engine = ScriptedEngine([call("other"), say("Done.")])
    async with Agent(engine, [other]).session(id="u", store=tmp_path / "s") as session:
        answer = await session.run()
        assert answer.text == "Done." and [made.name for made, _ in answer.calls] == ["other"]
        session.rewind()
        assert session.messages == ()
    assert "are rendered again" in caplog.text
    sent = [each["role"] for each in engine.sessions[0].turns[0]]
    assert sent == ["user", "assistant", "tool"]
