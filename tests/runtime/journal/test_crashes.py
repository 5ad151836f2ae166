"""Responses whose server dies: each prefix of a journal leads to the same end."""

import asyncio
import json
from typing import Any

import pytest

from caesura.runtime.audit import AuditLog
from caesura.runtime.journal.record import encoded, recorded
from caesura.runtime.journal.store import Entry
from caesura.runtime.testing import call, calls, say
from caesura.tools.people import People, make_ask_user
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import MCP, LoggingEngine, Shop, Spy

pytestmark = pytest.mark.usefixtures("written_to_the_end")

TEXTS = (
    "Let me see what it costs.",
    "One more.",
    "You paid twelve euros in all, and four doubled is eight.",
)
SCRIPT = [
    calls(call("double", number=4), call("pay", euros=5), text=TEXTS[0]),
    calls(call("pay", euros=7), text=TEXTS[1]),
    say(TEXTS[2]),
]


def plain(events: list[dict[str, Any]]) -> list[Any]:
    """Events without times."""
    for event in events:
        if "response" in event:
            for name in ("completed_at", "caesura"):
                event["response"].pop(name, None)
    return events


async def lived_through(serve: Any, **fields: Any) -> tuple[list[Any], list[Entry], Shop]:
    """A response that nothing disturbs: its events, and the entries of its journal."""
    shop, journal = Shop(), Spy()
    seen = 0

    async def all_is_written(event: Any) -> None:
        """Let the journal take each event, so that it is there in all of its states."""
        nonlocal seen
        await until(lambda: len(journal.steps) >= seen)
        seen += 1

    engine = LoggingEngine(SCRIPT, model=MODEL, pace=all_is_written)
    server = await serve(engine, shop.tools, journal)
    events = await server.streamed(input="Buy it.", tools=[MCP], **fields)
    await until(lambda: journal.count == 0)  # nothing is left of a run that has ended
    return plain(events), journal.all, shop


async def test_each_prefix_of_a_journal_leads_to_the_same_end(serve: Any) -> None:
    whole, entries, shop = await lived_through(serve)
    assert shop.paid == [5, 7] and len(entries) > 10
    response = entries[0].run_id
    for length in range(1, len(entries) + 1):
        told = recorded(response, [entry.body for entry in entries[:length]])
        again, journal = Shop("fail"), Spy(entries[:length])
        server = await serve(SCRIPT, again.tools, journal)
        events = plain(await server.events(response))
        paid = len(again.paid) + sum("paid" in r.content for r in told.results.values())
        # Only a call of which nobody knows whether it was made may change the end.
        unknown = "it is unknown whether it took effect" in str(events)
        assert (events == whole) == (not unknown), f"prefix of {length} entries"
        assert paid == 2 - str(events[-1]).count("it is unknown whether it took effect")
        await _empty(journal)
        await server.http.close()


async def test_what_was_decoded_is_not_decoded_again(serve: Any) -> None:
    _, entries, _ = await lived_through(serve)
    characters = sum(len(text) for text in TEXTS)
    for length in (3, len(entries) // 2, len(entries)):
        shop, told = Shop(), recorded("r", [entry.body for entry in entries[:length]])
        logged = sum(len(turn.sampled) for turn in told.turns)
        server = await serve(SCRIPT, shop.tools, Spy(entries[:length]))
        await server.events(entries[0].run_id)
        assert server.engine.decoded == characters - logged
    assert logged and shop.paid == [] and shop.doubled == 0


async def test_the_audit_log_tells_which_calls_an_earlier_process_made(
    serve: Any, tmp_path: Any
) -> None:
    _, entries, _ = await lived_through(serve)
    cut = next(i for i, entry in enumerate(entries) if '"result"' in entry.body) + 1
    audit, shop = AuditLog(tmp_path / "audit.jsonl"), Shop("fail")
    server = await serve(SCRIPT, shop.tools, Spy(entries[:cut]), audit=audit)
    await server.events(entries[0].run_id)
    noted = [json.loads(line) for line in audit.path.read_text().splitlines()]
    known = [each["call"] for each in noted if each.get("earlier")]
    told = recorded(entries[0].run_id, [entry.body for entry in entries[:cut]])
    assert known == list(told.results) and len(noted) == 3
    audit.close()


async def test_a_client_that_comes_back_sees_no_gap_and_no_repeat(serve: Any) -> None:
    whole, entries, _ = await lived_through(serve)
    for after in (0, 3, len(whole) // 2, len(whole) - 2):
        server = await serve(SCRIPT, Shop().tools, Spy(entries[:3]))
        events = plain(await server.events(entries[0].run_id, after))
        assert events == whole[after + 1 :]


async def test_other_cuts_of_the_text_do_not_change_the_events(serve: Any) -> None:
    whole, entries, _ = await lived_through(serve)
    for size in (1, 2, 5, 100):
        engine = LoggingEngine(SCRIPT, model=MODEL, piece_characters=size)
        server = await serve(engine, Shop().tools, Spy(entries))
        assert plain(await server.events(entries[0].run_id)) == whole


async def test_an_unknown_call_is_asked_about_and_runs_again_if_a_person_says_so(
    serve: Any,
) -> None:
    _, entries, _ = await lived_through(serve)
    cut = _between_dispatch_and_result(entries)
    for approve, paid in ((True, [7]), (False, [])):
        shop, people = Shop(), People()
        server = await serve(SCRIPT, shop.tools, Spy(entries[:cut]), people=people)
        (item,) = await _pending(server)
        assert item["tool"] == "pay" and "nobody knows" in item["question"]
        await server.post(f"/v1/pending/{item['id']}", model=None, approve=approve)
        events = await server.events(entries[0].run_id)
        assert events[-1]["type"] == "response.completed"
        assert shop.paid == paid
        text = str(events[-1])
        assert ("it is unknown whether it took effect" in text) == (not approve)
        await people.aclose()


async def _empty(journal: Spy) -> None:
    await until(lambda: journal.count == 0)


async def _pending(server: Any) -> list[Any]:
    async def pending() -> Any:
        return (await server.get("/v1/pending"))["data"]

    return list(await until(pending))


def _between_dispatch_and_result(entries: list[Entry]) -> int:
    """The length of a journal that ends where the second payment was dispatched."""
    for length in range(len(entries), 0, -1):
        told = recorded("r", [entry.body for entry in entries[:length]])
        if told.unknown and len(told.turns) == 2:
            return length
    raise AssertionError("no such place")


async def test_a_journal_without_sense_is_skipped_with_a_warning(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, entries, _ = await lived_through(serve)
    for bad in ("", '["told", [{}]]', "{", '["turn", 5]', '["odd", 1]', '["begin", {}]', "7"):
        journal = Spy([*entries[:4], Entry(entries[0].run_id, 4, bad)])
        server = await serve(SCRIPT, Shop().tools, journal)
        await _empty(journal)
        assert "does not go on" in caplog.text or "is not taken up again" in caplog.text
        with pytest.raises(AssertionError, match="response_not_found"):
            await server.get(f"/v1/responses/{entries[0].run_id}")
        caplog.clear()


async def test_a_journal_whose_request_makes_no_sense_stops_no_server(serve: Any) -> None:
    _, entries, _ = await lived_through(serve)
    first = entries[0]
    bodies = {first.body.replace(name, '"odd":') for name in ('"type":', '"content":')}
    assert first.body not in bodies
    for body in bodies:
        journal = Spy([Entry(first.run_id, 0, body), *entries[1:4]])
        await serve(SCRIPT, Shop().tools, journal)
        await _empty(journal)


async def killed(serve: Any, entries: list[Entry]) -> list[Entry]:
    """Let a server take a run up, and return the journal as a kill would leave it then."""
    shop, journal = Shop(), Spy(entries)
    await serve(LoggingEngine(SCRIPT, model=MODEL, pace=_never), shop.tools, journal)
    await until(lambda: any('"resumed"' in entry.body for entry in journal.all))
    return [*entries, *journal.all]


async def _never(event: Any) -> None:
    await asyncio.Event().wait()


async def test_a_run_under_which_server_after_server_dies_is_given_up(serve: Any) -> None:
    whole, entries, _ = await lived_through(serve)
    half = _within_last_turn(entries)
    told = len(recorded("r", [entry.body for entry in half]).steps)
    for _ in range(2):
        half = await killed(serve, half)
    shop, journal = Shop(), Spy(half)
    server = await serve(SCRIPT, shop.tools, journal)
    events = plain(await server.events(entries[0].run_id))
    error = events[-1]["response"]["error"]
    assert error["code"] == "repeated_deaths" and "3 servers died" in error["message"]
    assert told and events[: told - 1] == whole[: told - 1]
    assert server.engine.decoded == 0
    await _empty(journal)


async def test_a_run_whose_servers_are_stopped_goes_on(serve: Any) -> None:
    whole, entries, _ = await lived_through(serve)
    half = _within_last_turn(entries)
    for _ in range(5):
        journal = Spy(half)
        engine = LoggingEngine(SCRIPT, model=MODEL, pace=_never)
        server = await serve(engine, Shop().tools, journal)
        await server.app.leave()
        await server.app.close()
        half += journal.all
    server = await serve(SCRIPT, Shop().tools, Spy(half))
    assert plain(await server.events(entries[0].run_id)) == whole


async def test_deaths_count_only_while_a_run_is_busy_and_does_not_get_on(serve: Any) -> None:
    _, entries, _ = await lived_through(serve)
    for length in range(1, len(entries) + 1):
        bodies = [entry.body for entry in entries[:length]]
        told = recorded("r", bodies)
        waits = bool(told.turns) and told.turns[-1].outcome is not None and not told.unknown
        assert told.deaths == (not waits)
        again = recorded("r", [*bodies, encoded("resumed", 2)])
        assert again.deaths == 2 + (not waits)
        assert recorded("r", [*bodies, encoded("resumed", 2), encoded("left", None)]).deaths == 2
    kinds = [entry.body.partition(",")[0] for entry in entries]
    for ends in ('["outcome"', '["result"'):
        place = kinds.index(ends)
        bodies = [entry.body for entry in entries]
        bodies.insert(place, encoded("resumed", 2))
        assert recorded("r", bodies[: place + 2]).earlier_deaths == 0


async def test_deaths_while_a_run_waits_for_a_person_do_not_count(serve: Any) -> None:
    people, journal = People(), Spy()
    ask = make_ask_user(people)
    script = [call(ask.name, question="Which?"), say("Thanks.")]
    mcp = MCP | {"allowed_tools": [ask.name]}
    server = await serve(script, [ask], journal, people=people)
    await server.post(input="Ask.", tools=[mcp], background=True)
    await _pending(server)
    await until(lambda: '["outcome"' in str(journal.all))
    assert recorded("r", [entry.body for entry in journal.all]).deaths == 0
    await people.aclose()


def _within_last_turn(entries: list[Entry]) -> list[Entry]:
    """A journal that ends within its last turn, of which the client was told something."""
    for length in range(len(entries), 0, -1):
        turns = recorded("r", [entry.body for entry in entries[:length]]).turns
        if turns[-1].outcome is None and turns[-1].sampled:
            return entries[:length]
    raise AssertionError("no such place")


async def test_a_journal_of_another_run_fails_the_response_clearly(serve: Any) -> None:
    _, entries, _ = await lived_through(serve)
    other = [say("Something else entirely.")]
    server = await serve(other, Shop().tools, Spy(entries))
    events = await server.events(entries[0].run_id)
    assert events[-1]["type"] == "response.failed"
    assert "the journal does not fit the run" in events[-1]["response"]["error"]["message"]
