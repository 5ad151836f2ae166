"""Calls in the background outlive their server: they are made once, and told in the same place."""

import asyncio
from typing import Any

import pytest

from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.journal.record import recorded
from caesura.runtime.testing import call, calls, say
from caesura.tools import tool
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import LoggingEngine, Spy

pytestmark = pytest.mark.usefixtures("written_to_the_end")

MCP = {"type": "mcp", "server_label": "caesura"}
SCRIPT = [
    calls(call("ship", euros=5), text="I ship it."),
    calls(call("double", number=4), text="Meanwhile."),
    say("Eight, and I wait."),
    say("It has been shipped."),
]


class Yard:
    """A tool in the background, whose calls end once the model has nothing else to say."""

    def __init__(self, *, safe: bool) -> None:
        self.shipped, self.idle = 0, asyncio.Event()

        @tool(background=True, safe_to_repeat=safe, when_unknown="fail")
        async def ship(euros: int) -> str:
            """Ship a parcel."""
            self.shipped += 1
            await self.idle.wait()
            return f"shipped for {euros}"

        @tool(safe_to_repeat=True)
        async def double(number: int) -> int:
            """Double a number."""
            return 2 * number

        self.tools = [ship, double]

    async def pace(self, event: Any) -> None:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            self.idle.set()

    def engine(self) -> LoggingEngine:
        return LoggingEngine(SCRIPT, model=MODEL, pace=self.pace)


def plain(events: list[dict[str, Any]]) -> list[Any]:
    for event in events:
        if "response" in event:
            for name in ("completed_at", "caesura"):
                event["response"].pop(name, None)
    return events


@pytest.mark.parametrize("safe", [True, False])
async def test_each_prefix_of_a_journal_leads_to_the_same_end(serve: Any, safe: bool) -> None:
    yard, journal = Yard(safe=safe), Spy()
    server = await serve(yard.engine(), yard.tools, journal)
    whole = plain(await server.streamed(input="Ship it.", tools=[MCP]))
    await until(lambda: journal.count == 0)
    entries = journal.all
    assert yard.shipped == 1 and "shipped for 5" in str(whole[-1])
    assert len([each for each in entries if each.body.startswith('["late"')]) == 3
    response = entries[0].run_id
    for length in range(1, len(entries) + 1):
        told = recorded(response, [entry.body for entry in entries[:length]])
        again, journal = Yard(safe=safe), Spy(entries[:length])
        server = await serve(again.engine(), again.tools, journal)
        events = plain(await server.events(response))
        made = again.shipped + any("shipped" in each.content for each in told.results.values())
        unknown = "it is unknown whether it took effect" in str(events)
        assert not (unknown and safe)
        assert made == (not unknown), f"prefix of {length} entries"
        assert events[-1]["type"] == "response.completed"
        if not unknown:
            assert events == whole, f"prefix of {length} entries"
        await until(lambda here=journal: here.count == 0)
        await server.http.close()
