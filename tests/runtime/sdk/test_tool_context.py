"""What a run tells its tools, and what it keeps for them: its session, the engine's tokens."""

import asyncio

import pytest

from caesura.runtime.run.fold import digest
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.tools import tool
from caesura.tools.context import CallContext, current

pytestmark = pytest.mark.timeout(120)


class Watcher:
    """A tool that keeps something for its session, and remembers how it was called."""

    def __init__(self) -> None:
        self.seen: list[CallContext] = []
        self.closed: list[str] = []
        self.begun = asyncio.Event()

        @tool
        async def watch(hang: bool = False) -> str:
            """Watch."""
            self.seen.append(current())
            session = current().scope.session_id
            await current().scope.keep("k", self._make, self._close)
            self.begun.set()
            if hang:
                await asyncio.Event().wait()
            return session

        self.tool = watch

    async def _make(self) -> str:
        return current().scope.session_id

    async def _close(self, session: str) -> None:
        self.closed.append(session)


@pytest.fixture
def watcher():
    return Watcher()


async def test_a_sessions_runs_share_a_scope_and_differ_in_conversation(watcher):
    script = [call("watch"), say("1"), call("watch"), call("watch"), say("2")]
    async with ScriptedEngine(script) as engine:
        async with Agent(engine, [watcher.tool]).session() as session:
            await session.run("One.")
            first_digest = digest([{"role": "user", "content": "One."}])
            await session.run("Two.")
            assert watcher.closed == []
        assert len({each.scope.session_id for each in watcher.seen}) == 1
        assert watcher.closed == [watcher.seen[0].scope.session_id]
        conversations = [each.conversation for each in watcher.seen]
        assert conversations[0] == first_digest
        assert conversations[1] == conversations[2] == digest(session.messages[:5])
        assert len(set(conversations)) == 2


async def test_sessions_have_scopes_of_their_own(watcher):
    script = [call("watch"), say("1"), call("watch"), say("2")]
    async with ScriptedEngine(script) as engine:
        agent = Agent(engine, [watcher.tool])
        await agent.run("Same.")
        await agent.run("Same.")
    first, second = watcher.seen
    assert first.scope.session_id != second.scope.session_id
    assert first.conversation == second.conversation
    assert len(watcher.closed) == 2


async def test_a_session_tells_its_tools_apart_by_user(watcher):
    async with ScriptedEngine([call("watch"), say("1")] * 4) as engine:
        agent = Agent(engine, [watcher.tool])
        for user in ("eva", "tom", "eva", None):
            async with agent.session(user=user) as session:
                await session.run("Same.")
    eva, tom, again, unknown = (each.run.asker for each in watcher.seen)
    assert eva == again != tom
    assert "eva" not in eva
    assert unknown == ""


async def test_results_are_cut_by_the_engines_tokens():
    @tool
    async def talk() -> str:
        """Talk."""
        return "word " * 500

    async with ScriptedEngine([call("talk"), say("ok")], context_tokens=1000) as engine:
        answer = await Agent(engine, [talk]).run("Talk.")
    content = answer.calls[0][1].content
    assert content.endswith("[cut: 500 tokens in all, 243 shown]")
    assert engine.count_tokens(content) == 250
