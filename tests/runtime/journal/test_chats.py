"""Chat completions with an `Idempotency-Key`: joined, fetched once, and over a restart."""

import asyncio
from typing import Any

import aiohttp
import pytest

from caesura.runtime.errors import ContextOverflow, EngineFailed
from caesura.runtime.journal.record import encoded
from caesura.runtime.journal.store import Entry
from caesura.runtime.testing import fail
from caesura.tools.people import People, with_approval
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import LoggingEngine, Shop, Spy, read_events
from tests.runtime.journal.paying import SAID, SCRIPT, chat


async def text(server: Any, **fields: Any) -> str:
    """What a client with a key is sent; a stream's pieces as one text."""
    path, headers = "/v1/chat/completions", {"Idempotency-Key": "k"}
    async with server.http.post(path, json=SAID | fields, headers=headers) as response:
        sent: str = await response.text()
    chunks = [] if "[DONE]" not in sent else read_events(sent)
    deltas = [each["choices"][0]["delta"] for each in chunks if each["choices"]]
    return "".join(each.get("content") or "" for each in deltas) or sent


class Hold:
    """Holds an engine before its second turn until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.turns = 0

    async def __call__(self, event: Any) -> None:
        if type(event).__name__ == "TurnEnded":
            self.turns += 1
        elif self.turns:
            await self.open.wait()


async def test_a_repeat_joins_the_run_under_way_and_the_answer_is_fetched_once(
    serve: Any,
) -> None:
    hold, shop, journal = Hold(), Shop(), Spy()
    script = [*SCRIPT, *SCRIPT]
    server = await serve(LoggingEngine(script, model=MODEL, pace=hold), shop.tools, journal)
    first = asyncio.create_task(chat(server))
    await until(lambda: shop.paid)
    second = asyncio.create_task(chat(server))
    await asyncio.sleep(0)
    first.cancel()  # its client leaves, and the run goes on
    await asyncio.gather(first, return_exceptions=True)
    with pytest.raises(AssertionError, match="idempotency_key_reused"):
        await chat(server, max_tokens=9)
    hold.open.set()
    answer = await second
    assert answer["choices"][0]["message"]["content"].endswith("You paid five euros.")
    assert shop.paid == [5]
    await until(lambda: journal.count == 0)
    await chat(server)
    assert shop.paid == [5, 5], "the answer was fetched: the same key begins anew"


async def test_a_completion_goes_on_after_its_server_has_died(serve: Any) -> None:
    hold, shop, journal = Hold(), Shop(), Spy()
    server = await serve(LoggingEngine(SCRIPT, model=MODEL, pace=hold), shop.tools, journal)
    waiting = asyncio.create_task(chat(server))
    await until(lambda: any('"result"' in entry.body for entry in journal.all))
    again = await serve(SCRIPT, shop.tools, Spy(list(journal.all)))
    answer = await chat(again)
    assert answer["id"] == journal.all[0].run_id
    assert answer["choices"][0]["message"]["content"].endswith("You paid five euros.")
    assert shop.paid == [5]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_completion_under_which_servers_died_is_given_up(serve: Any) -> None:
    hold, shop, journal = Hold(), Shop(), Spy()
    server = await serve(LoggingEngine(SCRIPT, model=MODEL, pace=hold), shop.tools, journal)
    waiting = asyncio.create_task(chat(server))
    await until(lambda: sum('["turn"' in entry.body for entry in journal.all) == 2)
    run, number = journal.all[0].run_id, len(journal.all)
    died = [*journal.all, Entry(run, number, encoded("resumed", 2))]
    again = Spy(died)
    later = await serve(SCRIPT, shop.tools, again)
    body = await chat(later, status=422)
    assert body["error"]["code"] == "repeated_deaths"
    assert later.engine.decoded == 0
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_an_approval_that_was_given_meanwhile_is_used(serve: Any, tmp_path: Any) -> None:
    shop, journal = Shop(), Spy()
    people = People(tmp_path / "people.sqlite")
    pay = with_approval(shop.tools[0], people)
    server = await serve(SCRIPT, [pay], journal, people=people)
    waiting = asyncio.create_task(chat(server))
    await until(lambda: people.waited_for and '"told"' not in journal.all[-1].body)
    item = people.waited_for[0]
    entries = list(journal.all)
    await server.app.leave()
    await server.app.close()
    with pytest.raises((AssertionError, aiohttp.ClientError)):
        await waiting
    await people.aclose()
    later = People(tmp_path / "people.sqlite")
    await later.start()
    await later.decide(item.id, True)
    again = await serve(SCRIPT, [with_approval(shop.tools[0], later)], Spy(entries), people=later)
    answer = await chat(again)
    assert answer["choices"][0]["message"]["content"].endswith("You paid five euros.")
    assert shop.paid == [5]
    await later.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_error_that_ended_a_run_is_told_once_and_frees_the_key(
    serve: Any, stream: bool
) -> None:
    shop, journal = Shop(), Spy()
    script = [fail(ContextOverflow("too long"), "I pay."), *SCRIPT]
    server = await serve(script, shop.tools, journal)
    assert "context_length_exceeded" in await text(server, stream=stream)
    await until(lambda: journal.count == 0)
    assert "You paid five euros." in await text(server, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_goes_on_in_the_next_process_when_the_engine_is_given_up(
    serve: Any, stream: bool
) -> None:
    hold, shop, journal = Hold(), Shop(), Spy()
    server = await serve(LoggingEngine(SCRIPT, model=MODEL, pace=hold), shop.tools, journal)
    asking = asyncio.create_task(text(server, stream=stream))
    await until(lambda: any('"result"' in entry.body for entry in journal.all))
    await server.app.lose_engine(EngineFailed("given up"))
    assert "server_stopped" in await asking
    await server.app.close()
    assert journal.count == 1
    again = await serve(SCRIPT, shop.tools, Spy(journal.all))
    assert "You paid five euros." in await text(again, stream=stream)
    assert shop.paid == [5]


async def test_without_a_key_nothing_is_written(serve: Any) -> None:
    journal, shop = Spy(), Shop()
    server = await serve(SCRIPT, shop.tools, journal)
    await chat(server, key="")
    assert journal.all == []
