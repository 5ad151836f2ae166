"""What the server's runs keep for their tools ends with the request, however that ends."""

import asyncio
import json

import pytest

from caesura.runtime.testing import call, say
from caesura.tools import tool
from caesura.tools.context import current
from tests.kit.waiting import until


class Keeper:
    """A tool that keeps something for its session, and remembers what was closed."""

    def __init__(self) -> None:
        self.conversations: list[str] = []
        self.kept: list[str] = []
        self.closed: list[str] = []

        @tool
        async def keep(hang: bool = False) -> str:
            """Keep something."""
            self.conversations.append(current().conversation)
            self.kept.append(await current().scope.keep("k", self._make, self._close))
            if hang:
                await asyncio.Event().wait()
            return "kept"

        self.tool = keep

    async def _make(self) -> str:
        return current().scope.session_id

    async def _close(self, session: str) -> None:
        await asyncio.sleep(0.01)
        self.closed.append(session)


@pytest.fixture
def keeper():
    return Keeper()


async def test_a_request_is_a_session(serve_script, keeper):
    script = [call("keep"), call("keep"), say("1"), call("keep"), say("2")]
    served = await serve_script(script, [keeper.tool])
    for _ in range(2):
        status, _ = await served.chat(server_tools=["keep"])
        assert status == 200
    first, again, second = keeper.kept
    assert first == again != second
    assert keeper.closed == [first, second]
    assert len(set(keeper.conversations)) == 1


async def test_another_conversation_has_another_digest(serve_script, keeper):
    served = await serve_script([call("keep"), say("1")] * 2, [keeper.tool])
    for text in ("One.", "Two."):
        messages = [{"role": "user", "content": text}]
        await served.chat(server_tools=["keep"], messages=messages)
    assert len(set(keeper.conversations)) == 2


async def test_a_client_that_leaves(serve_script, keeper):
    served = await serve_script([call("keep", hang=True)], [keeper.tool])
    body = served.body(server_tools=["keep"], stream=True)
    asked = asyncio.create_task(served.http.post("/v1/chat/completions", json=body))
    await until(lambda: keeper.kept)
    asked.cancel()
    await asyncio.wait([asked])
    if not asked.cancelled():
        asked.result().close()
    await until(lambda: keeper.closed == keeper.kept)


async def test_results_are_cut_to_the_models_context(serve_script):
    @tool
    async def talk() -> str:
        """Talk."""
        return "word " * 3000

    served = await serve_script([call("talk"), say("ok")], [talk])
    status, answer = await served.chat(server_tools=["talk"])
    assert status == 200
    assert "[cut: 3000 tokens in all, 1993 shown]" in json.dumps(answer)
