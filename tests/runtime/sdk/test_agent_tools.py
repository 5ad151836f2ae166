"""An agent's tools: sources that start with the first run, configurations, what is closed."""

import asyncio

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError
from caesura.tools.tool import Tool


def named(name: str) -> Tool:
    async def run() -> str:
        return f"{name} ran"

    return Tool.from_schema(name, "", {"type": "object"}, run)


class Source:
    """A source of one tool, that counts its starts and closes."""

    prefix = False

    def __init__(self, name: str = "files", error: Exception | None = None) -> None:
        self.name, self.error = name, error
        self.open, self.starts = 0, 0
        self.tools: tuple[Tool, ...] = ()
        self.changed = lambda: None

    async def start(self) -> list[Tool]:
        self.starts += 1
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        self.open += 1
        self.tools = (named("read"),)
        return list(self.tools)

    def watch(self, changed):
        self.changed = changed
        return lambda: None

    async def aclose(self) -> None:
        self.open -= 1


async def test_a_source_starts_with_the_first_run_and_ends_with_the_agent():
    source = Source()
    async with ScriptedEngine([call("read"), say("Done.")]) as engine:
        async with Agent(engine, [source, "calculator"]) as agent:
            assert [tool.name for tool in agent.tools] == ["calculator"]
            assert source.starts == 0
            answer = await agent.run("Read.")
            assert answer.calls[0][1].content == "read ran"
            assert [tool.name for tool in agent.tools] == ["calculator", "read"]
        assert (source.starts, source.open) == (1, 0)
    names = [spec["function"]["name"] for spec in engine.sessions[0].spec.tools]
    assert names == ["calculator", "read"]


async def test_sessions_at_the_same_time_start_it_once():
    source = Source()
    async with ScriptedEngine(lambda messages, tools: say("Hi.")) as engine:
        async with Agent(engine, [source]) as agent:
            await asyncio.gather(*(agent.run("Hi.") for _ in range(5)))
        assert (source.starts, source.open) == (1, 0)


async def test_a_session_keeps_the_tools_that_there_were_when_it_began():
    source = Source()
    async with ScriptedEngine(lambda messages, tools: say("Hi.")) as engine:
        async with Agent(engine, [source]) as agent, agent.session() as first:
            await first.run("Hi.")
            source.tools = (*source.tools, named("write"))
            source.changed()
            await first.run("Hi.")
            async with agent.session() as second:
                await second.run("Hi.")
        shown = [[each["function"]["name"] for each in s.spec.tools] for s in engine.sessions]
    assert shown == [["read"], ["read", "write"]]


async def test_one_that_must_start_and_does_not_is_the_callers_mistake():
    source = Source(error=SetupError("no such program"))
    engine = ScriptedEngine(lambda messages, tools: say("Hi."))
    async with engine, Agent(engine, [source]) as agent:
        for _ in range(2):
            with pytest.raises(UsageError, match="no such program"):
                await agent.run("Hi.")
        source.error = None
        assert (await agent.run("Hi.")).text == "Hi."


async def test_a_cancelled_run_does_not_take_the_start_from_another():
    source = Source()
    async with ScriptedEngine(lambda messages, tools: say("Hi.")) as engine:
        async with Agent(engine, [source]) as agent:
            first = asyncio.ensure_future(agent.run("Hi."))
            second = asyncio.ensure_future(agent.run("Hi."))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).text == "Hi."
        assert (source.starts, source.open) == (1, 0)


async def test_a_configuration_sets_the_tools_and_the_limits(tmp_path):
    path = tmp_path / "caesura.toml"
    path.write_text(
        "[tools]\nenabled = ['clock']\n[tools.calculator]\ntimeout_seconds = 3\n"
        "[limits]\nmax_result_tokens = 7\n"
    )
    engine = ScriptedEngine()
    assert [tool.name for tool in Agent(engine, config=path).tools] == ["clock"]
    agent = Agent(engine, [named("own"), "calculator"], config=Config.load(path))
    own, calculator = agent.tools
    assert (calculator.timeout_seconds, calculator.max_result_tokens) == (3, 7)
    assert own.max_result_tokens == 7
    assert Agent(engine).tools == ()


def test_mistakes_are_the_callers(tmp_path):
    path = tmp_path / "caesura.toml"
    path.write_text("[tools.clock]\nzone = 3\n[mcpServers.files]\ncommand = 'files'\n")
    with pytest.raises(UsageError, match=r"\[tools.clock\]: unknown key 'zone'"):
        Agent(ScriptedEngine(), ["clock"], config=path)
    with pytest.raises(UsageError, match=r"unknown tool 'fils'; choose from: .*, files"):
        Agent(ScriptedEngine(), ["fils"], config=path)
    with pytest.raises(UsageError, match="cannot be read"):
        Agent(ScriptedEngine(), config=tmp_path / "no.toml")


def test_sources_start_once_for_all_event_loops():
    source = Source()

    async def run() -> str:
        async with ScriptedEngine([call("read"), say("Done.")]) as engine:
            agent._models = (engine,)
            return (await agent.run("Read.")).calls[0][1].content

    agent = Agent(ScriptedEngine(), [source])
    assert [asyncio.run(run()) for _ in range(2)] == ["read ran"] * 2
    assert source.starts == 1
    asyncio.run(agent.aclose())
    assert source.open == 0


def test_a_start_that_nobody_waits_for_any_more_is_tried_again():
    source = Source()
    hang = asyncio.Event()

    async def run(seconds: float) -> str:
        async with ScriptedEngine([say("Hi.")]) as engine:
            agent._models = (engine,)
            return (await asyncio.wait_for(agent.run("Hi."), seconds)).text

    agent = Agent(ScriptedEngine(), [source])
    start = source.start
    source.start = hang.wait
    with pytest.raises(TimeoutError):
        asyncio.run(run(0.1))
    source.start = start
    assert asyncio.run(run(30)) == "Hi."
