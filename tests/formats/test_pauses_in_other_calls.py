"""A pause in line, within what the API process reads as a call of another format."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from caesura.intercept.calls.events import CallFinished, CallMalformed, TextDelta, TurnEnded
from caesura.intercept.calls.watch import Verdict, Watch, WatchPlan
from caesura.scheduler.messages import SessionSpec
from caesura.scheduler.vllm.client.session import VllmSession
from tests.formats.cases import SEARCH, TOOLS
from tests.formats.rendering import RENDER
from tests.formats.speaking import Engine
from tests.formats.world import stand_in
from tests.kit.host import output

FORMATS = ("hermes", "inline")


class PausingEngine(Engine):
    """Says one text, and pauses at the token at which the watch does."""

    def __init__(self, text: str) -> None:
        tokens = stand_in("hermes").by_bytes(text)
        super().__init__("hermes", tokens, "stop", Verdict.CALL, formats=FORMATS)
        watch = Watch(WatchPlan(FORMATS, ("search",)), self.model.vocabulary, self.model.ends)
        self.stop = watch.first_stop(tokens)

    async def generate(self, chunks: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        assert self.stop is not None
        async for _chunk in chunks:
            ids = list(self.tokens[: self.stop[0] + 1])
            report = {"paused": True, "verdict": "call"}
            yield output(ids, "stop", self.text_of(ids), report)


async def turn_of(text: str) -> list[Any]:
    engine: Any = PausingEngine(text)
    session = VllmSession(engine, SessionSpec(tuple(TOOLS)))
    events = [event async for event in session.turn([{"role": "user", "content": "Trees?"}])]
    await session.close()
    return events


async def test_a_call_in_line_that_opens_another_call_is_refused() -> None:
    *events, ended = await turn_of('So [search("<tool_call>{") -> 1] is it.')
    (refused,) = (event for event in events if isinstance(event, CallMalformed))
    assert "before the call was closed" in refused.reason
    assert isinstance(ended, TurnEnded) and ended.reason == "call"


@pytest.mark.parametrize("invented", ["\n<tool_response>42</tool_response>So 42."])
async def test_a_pause_at_an_invented_result_waits_for_the_real_one(invented: str) -> None:
    *events, ended = await turn_of(RENDER["hermes"]([SEARCH]) + invented)
    (call,) = (event for event in events if isinstance(event, CallFinished))
    assert (call.name, call.inline) == ("search", False)
    assert not [event for event in events if isinstance(event, TextDelta)]
    assert isinstance(ended, TurnEnded) and ended.reason == "call"
