"""The agent: its tools, its engine, and the ways to ask it."""

import asyncio
import gc
import threading

import pytest

from caesura.runtime.errors import EngineFailed, LimitReached, UsageError
from caesura.runtime.events import RunEnded
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk import engines as shared
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.background import BACKGROUND
from caesura.runtime.sdk.engines import SharedEngines
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.scheduler.messages import Sampling
from caesura.tools import tool


def shout(text: str) -> str:
    """Shout a text."""
    return text.upper()


@pytest.fixture
def started(monkeypatch):
    """The engines that agents start by name: every one says "Hi." to everything."""
    engines = []

    async def start(model):
        engines.append(ScriptedEngine(lambda messages, tools: say("Hi."), model=str(model)))
        return engines[-1]

    monkeypatch.setattr(shared.ENGINES, "_launch", start)
    return engines


async def test_run_answers_and_closes_its_session():
    async with ScriptedEngine([call("shout", text="hey"), say("HEY")]) as engine:
        answer = await Agent(engine, [shout]).run("Shout hey.")
        assert engine.open_sessions == 0
    assert (answer.text, answer.reason) == ("HEY", "stop")
    [(made, result)] = answer.calls
    assert (made.name, made.arguments, result.content) == ("shout", '{"text": "hey"}', "HEY")
    assert answer.usage.turns == 2


async def test_stream_yields_the_run_and_closes_its_session():
    async with ScriptedEngine([say("Hello.")]) as engine:
        events = [event async for event in Agent(engine).stream("Hi.")]
        assert isinstance(events[-1], RunEnded)
        assert engine.open_sessions == 0


async def test_tools_may_be_functions_tools_and_names():
    @tool(name="other")
    def renamed() -> None:
        """Do nothing."""

    agent = Agent(ScriptedEngine(), [shout, renamed, "calculator"])
    assert [each.name for each in agent.tools] == ["shout", "other", "calculator"]


async def test_the_model_is_shown_tools_sampling_and_instructions():
    async with ScriptedEngine([say("Hi.")]) as engine:
        sampling = Sampling(temperature=0.0)
        await Agent(engine, [shout], instructions="Be kind.", sampling=sampling).run("Hi.")
    session = engine.sessions[0]
    assert [spec["function"]["name"] for spec in session.spec.tools] == ["shout"]
    assert session.spec.pausing
    assert session.samplings == [sampling]
    assert session.turns[0] == (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
    )


def test_an_unknown_builtin_is_named():
    with pytest.raises(UsageError, match=r"unknown tool 'calculater'.*calculator"):
        Agent(tools=["calculater"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Agent(7), "the model must be a Hugging Face id, a directory, an Engine or None"),
        (lambda: Agent(tools="calculator"), r"tools is a list.*write tools=\['calculator'\]"),
        (lambda: Agent(tools=shout), r"tools is a list.*write tools=\[shout\]"),
        (lambda: Agent(tools=tool(shout)), r"tools is a list.*write tools=\[shout\]"),
        (lambda: Agent(tools=[3]), "3 is no tool"),
        (lambda: Agent(limits={"max_turns": 3}), r"limits is of type dict: write limits=Limits\("),
        (lambda: Agent(sampling={"seed": 3}), r"sampling is of type dict: write sampling=Sampling"),
        (lambda: Sampling(temperature="hot"), "temperature must be a number or None, got 'hot'"),
        (lambda: Sampling(max_tokens=2.5), "max_tokens must be a whole number or None, got 2.5"),
        (lambda: Sampling(top_k=True), "top_k must be a whole number or None, got True"),
        (lambda: Sampling(stop="END"), r"stop must be a tuple of texts: write stop=\('END',\)"),
        (lambda: Limits(max_turns="3"), "max_turns must be a positive number or None, got '3'"),
        (lambda: Limits(max_seconds=float("nan")), "max_seconds must be a positive number"),
        (lambda: Agent(ScriptedEngine()).run_sync(None), "a text or a list of parts, got NoneType"),
        (lambda: Agent(ScriptedEngine()).run_sync({"role": "user"}), "a list of parts, got dict"),
        (
            lambda: Agent(ScriptedEngine()).run_sync([{"role": "user", "content": "Hi."}]),
            r"the prompt is a list of messages, with the roles \['user'\]: open agent.session",
        ),
        (lambda: Agent(ScriptedEngine), r"got its class: write ScriptedEngine\(...\)"),
        (lambda: Agent(name=3), r"name is of type int: write name="),
        (lambda: Agent(on_approval=True), "on_approval is of type bool: write on_approval="),
        (lambda: Agent().session("Hi."), "a history is a list of messages, got 'Hi.'"),
        (lambda: Agent().session({"role": "user"}), "a history is a list of messages, got {"),
        (
            lambda: Agent().session([{"role": "user", "content": "Hi."}, {"role": "human"}]),
            r"message 1 of the history has no role of .*: \{'role': 'human'\}",
        ),
    ],
)
def test_an_argument_of_another_kind_is_refused_in_a_sentence(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_a_directory_may_be_a_path(tmp_path):
    assert f"<Agent on {tmp_path}:" in repr(Agent(tmp_path))


def test_a_tool_without_a_description_is_noticed(caplog):
    def silent() -> None:
        pass

    Agent(ScriptedEngine(), [shout, silent])
    assert [record.getMessage() for record in caplog.records] == [
        "the tool silent has no description, by which a model chooses"
    ]


async def test_limits_bound_each_run():
    engine = ScriptedEngine(lambda messages, tools: call("shout", text="a"))
    with pytest.raises(LimitReached):
        await Agent(engine, [shout], limits=Limits(max_turns=2)).run("Go.")
    assert engine.open_sessions == 0


async def test_runs_at_once_have_sessions_of_their_own():
    def script(messages, tools):
        return say(f"You said {messages[-1]['content']}")

    engine = ScriptedEngine(script)
    agent = Agent(engine)
    answers = await asyncio.gather(*(agent.run(str(n)) for n in range(8)))
    assert [answer.text for answer in answers] == [f"You said {n}" for n in range(8)]
    assert (len(engine.sessions), engine.open_sessions) == (8, 0)


async def test_a_cancelled_run_closes_its_session():
    entered = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        entered.set()
        await asyncio.Event().wait()

    engine = ScriptedEngine([call("wait")])
    run = asyncio.create_task(Agent(engine, [wait]).run("Wait."))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert engine.open_sessions == 0


def test_run_sync_twice_on_one_engine():
    engine = ScriptedEngine([say("one"), say("two")])
    agent = Agent(engine)
    assert agent.run_sync("1").text == "one"
    assert agent.run_sync("2").text == "two"
    engine.assert_finished()


def test_run_sync_raises_what_run_raises():
    with pytest.raises(EngineFailed):
        Agent(ScriptedEngine(lambda messages, tools: failing())).run_sync("Hi.")


def failing():
    raise EngineFailed("gone")


async def test_run_sync_inside_an_event_loop_says_what_to_write():
    with pytest.raises(UsageError, match=r"await agent\.run"):
        Agent(ScriptedEngine()).run_sync("Hi.")


async def test_an_engine_that_was_passed_in_stays_open():
    engine = ScriptedEngine([say("Hi.")])
    async with Agent(engine) as agent:
        await agent.run("Hi.")
    assert not engine.closed


async def test_agents_of_one_model_share_an_engine(started):
    async with Agent("tiny") as first:
        async with Agent("tiny") as second:
            await asyncio.gather(first.run("1"), second.run("2"), first.run("3"))
        assert len(started) == 1
        assert not started[0].closed
    assert started[0].closed


async def test_each_model_has_its_engine_and_none_starts_unused(started):
    async with Agent("tiny") as one, Agent() as other, Agent("unused"):
        await one.run("Hi.")
        await other.run("Hi.")
    assert [engine.model for engine in started] == ["tiny", "None"]
    assert all(engine.closed for engine in started)


async def test_closing_twice_does_not_take_the_engine_from_another(started):
    async with Agent("tiny") as kept:
        await kept.run("Hi.")
        closed = Agent("tiny")
        await closed.run("Hi.")
        await closed.aclose()
        await closed.aclose()
        assert not started[0].closed


async def test_a_collected_agent_holds_nothing(started):
    await Agent("tiny").run("Hi.")
    gc.collect()
    async with Agent("tiny") as agent:
        await agent.run("Hi.")
    assert [engine.closed for engine in started] == [True]


async def test_a_start_that_failed_is_tried_again(started, monkeypatch):
    start = shared.ENGINES._launch

    async def refuse(model):
        raise EngineFailed("no memory")

    async with Agent("tiny") as agent:
        monkeypatch.setattr(shared.ENGINES, "_launch", refuse)
        with pytest.raises(EngineFailed, match="no memory"):
            await agent.run("Hi.")
        monkeypatch.setattr(shared.ENGINES, "_launch", start)
        assert (await agent.run("Hi.")).text == "Hi."


async def test_closing_while_the_engine_starts_cancels_the_start(monkeypatch):
    starting, cancelled = asyncio.Event(), asyncio.Event()

    async def start(model):
        starting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(shared.ENGINES, "_launch", start)
    agent = Agent("tiny")
    run = asyncio.create_task(agent.run("Hi."))
    await starting.wait()
    await agent.aclose()
    assert cancelled.is_set()
    with pytest.raises(EngineFailed, match="closed while it started"):
        await run


def test_close_closes_the_engine_of_run_sync(started):
    agent = Agent("tiny")
    agent.run_sync("Hi.")
    agent.run_sync("Hi.")
    agent.close()
    assert [engine.closed for engine in started] == [True]


async def test_close_all_closes_every_engine():
    engines = [ScriptedEngine(), ScriptedEngine()]

    async def start(model):
        return engines[int(model)]

    ours, holder = SharedEngines(start, BACKGROUND), Agent()
    await ours.hold("0", holder)
    await ours.hold("1", holder)
    await ours.close_all()
    assert all(engine.closed for engine in engines)
    await ours.release("0", holder)


def test_the_background_loop_runs_in_one_other_thread():
    async def thread() -> int:
        return threading.get_ident()

    threads = {BACKGROUND.run(thread, "await") for _ in range(3)}
    assert threads == {asyncio.run(BACKGROUND.carry(thread))}
    assert threading.get_ident() not in threads


async def test_a_closed_agent_says_so(started):
    engine = ScriptedEngine(lambda messages, tools: say("Hi."))
    for agent in (Agent("tiny", ["calculator"]), Agent(engine)):
        async with agent, agent.session() as session:
            await session.run("Hi.")
        for again in (agent.run, session.run, agent.session().run):
            with pytest.raises(UsageError, match="closed"):
                await again("Hi.")
        with pytest.raises(UsageError, match="closed"):
            await agent.start()
        await agent.aclose()
    assert [each.closed for each in started] == [True]
    assert not engine.closed


async def test_start_starts_the_engine_before_the_first_run(started):
    async with Agent("tiny") as agent:
        await agent.start()
        await agent.start()
        assert len(started) == 1
        await agent.run("Hi.")
    assert [engine.closed for engine in started] == [True]


def test_reprs():
    assert repr(Agent("tiny", ["calculator"], name="al")) == "<Agent 'al' on tiny: ['calculator']>"
    assert repr(Agent()) == "<Agent on the bundled model: []>"
    assert repr(Agent(ScriptedEngine())) == "<Agent on scripted: []>"
