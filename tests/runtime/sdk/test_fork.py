"""Agents in a process that was forked from one that uses them."""

import asyncio
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from caesura.runtime.sdk import engines as shared
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, say

pytestmark = [
    pytest.mark.timeout(120),
    # Python 3.12 and later warn of what is tested here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines that agents start by name: every one says "Hi." to everything."""

    async def start(model: str | None) -> ScriptedEngine:
        return ScriptedEngine(lambda messages, tools: say("Hi."), model=str(model))

    monkeypatch.setattr(shared.ENGINES, "_launch", start)


def in_a_fork(ask: Callable[[], object]) -> str:
    """Return what `ask` returns or raises in a forked process."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def child(pipe: Connection) -> None:
        try:
            pipe.send(str(ask()))
        except BaseException as error:
            pipe.send(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    theirs.close()
    try:
        return str(ours.recv())
    finally:
        process.join()


@pytest.mark.usefixtures("started")
def test_a_forked_process_is_told_that_it_has_no_engine() -> None:
    agent = Agent("tiny")
    try:
        assert agent.run_sync("Hi.").text == "Hi."
        for ask in (
            lambda: agent.run_sync("Hi."),
            lambda: asyncio.run(agent.run("Hi.")),
            lambda: Agent("tiny").run_sync("Hi."),
            lambda: Agent("another").run_sync("Hi."),
        ):
            told = in_a_fork(ask)
            assert told.startswith("UsageError: process "), told
            assert "was forked from process" in told
            assert 'get_context("spawn")' in told
        assert in_a_fork(agent.close) == "None"
        assert agent.run_sync("Hi.").text == "Hi."
    finally:
        agent.close()


@pytest.mark.usefixtures("started")
def test_a_process_that_was_forked_before_the_first_engine_starts_its_own() -> None:
    assert in_a_fork(lambda: Agent("tiny").run_sync("Hi.")) == "Hi."
    # A loop whose thread has stayed behind is replaced.
    engine = ScriptedEngine(lambda messages, tools: say("Hello."))
    assert Agent(engine).run_sync("Hi.").text == "Hello."
    assert in_a_fork(lambda: Agent(engine).run_sync("Hi.")) == "Hello."
