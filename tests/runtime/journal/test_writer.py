"""The writer of journals: stores that fail, come back, or give runs to another server."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from caesura.runtime.journal import writer as writing
from caesura.runtime.journal.record import Recorded, begun, recorded
from caesura.runtime.journal.store import Entry, JournalUnavailable
from caesura.runtime.journal.writer import JournalWriter
from caesura.runtime.testing import call, calls, say
from caesura.stores.leases import LEASE_SECONDS
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import MCP, LoggingEngine, Shop, Spy

SCRIPT = [calls(call("pay", euros=5), text="I pay."), say("Done.")]


class Failing(Spy):
    """A journal that fails while a test wants it to."""

    fails = False
    tries = 0

    def _do(self, work: Any) -> Any:
        if self.fails:
            self.tries += 1
            raise JournalUnavailable("the disk is full")
        return super()._do(work)


class Gate:
    """Holds an engine before each event until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, event: Any) -> None:
        self.reached.set()
        await self.open.wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the waits for a failing store short."""
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(writing, "RECORD_SECONDS", 0.1)


async def held(serve: Any, journal: Spy, shop: Shop) -> tuple[Any, Gate, asyncio.Task[Any]]:
    """A response that is held before its first event, and whose journal has begun."""
    gate = Gate()
    engine = LoggingEngine(SCRIPT, model=MODEL, pace=gate)
    server = await serve(engine, shop.tools, journal)
    task = asyncio.create_task(server.streamed(input="Pay.", tools=[MCP]))
    await until(lambda: len(journal.all) >= 2)
    await gate.reached.wait()
    return server, gate, task


@pytest.mark.usefixtures("quick")
async def test_a_run_goes_on_while_the_journal_fails_and_is_written_later(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    journal, shop = Failing(), Shop("fail")
    server, gate, task = await held(serve, journal, shop)
    journal.fails = True
    writer = server.app._state.journal
    writer._runs[journal.all[0].run_id].streamed(-1)  # something to write
    await until(lambda: journal.tries >= 3)
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "runs go on without a journal" in caplog.text
    assert writer.failures >= 3 and writer.trouble
    journal.fails = False
    await until(lambda: writer.trouble is None)
    assert recorded("r", [entry.body for entry in journal.all]).steps == [-1]
    assert "the journal is written again" in caplog.text
    gate.open.set()
    assert (await task)[-1]["type"] == "response.completed"
    assert shop.paid == [5]


@pytest.mark.usefixtures("quick")
async def test_a_call_that_cannot_be_recorded_is_not_made(serve: Any) -> None:
    """The next server would find the run before its call, and make it a second time."""
    journal, shop = Failing(), Shop("fail")
    _, gate, task = await held(serve, journal, shop)
    journal.fails = True
    gate.open.set()
    events = await task
    assert events[-1]["type"] == "response.completed"
    assert "could not be recorded in the journal, so it was not made" in str(events[-1])
    assert shop.paid == []


@pytest.mark.usefixtures("quick")
async def test_a_run_that_begins_while_the_journal_fails_makes_its_calls(serve: Any) -> None:
    journal, shop = Failing(), Shop()
    server = await serve(SCRIPT, shop.tools, journal)
    journal.fails = True
    writer = server.app._state.journal
    writer._failed(JournalUnavailable("the disk is full"))
    events = await server.streamed(input="Pay.", tools=[MCP])
    assert events[-1]["type"] == "response.completed"
    assert shop.paid == [5]
    journal.fails = False
    await until(lambda: writer.trouble is None)
    assert journal.count == 0, "it is not written when it could not be taken up any more"


async def test_another_server_takes_a_run_over_and_this_one_stops_it(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "RENEW_SECONDS", 3600.0)  # on a slow machine it would be renewed
    journal = Spy()
    here, there = Shop("fail"), Shop("fail")
    server, gate, task = await held(serve, journal, here)
    response = journal.all[0].run_id
    journal.leave(server.app._state.journal.owner)  # as if the lease had run out
    other = await serve(SCRIPT, there.tools, journal)
    assert (await other.events(response))[-1]["type"] == "response.completed"
    assert there.paid == [5]
    gate.open.set()
    try:
        events = await task
    except AssertionError as refused:
        assert "It goes on after the restart" in str(refused)
    else:
        assert not events[-1]["type"].startswith(("response.failed", "response.completed"))
    assert here.paid == []


async def test_what_was_written_survives_a_server_that_is_stopped(serve: Any) -> None:
    journal, shop = Spy(), Shop("fail")
    server, _, task = await held(serve, journal, shop)
    response = journal.all[0].run_id
    await server.app.leave()
    await server.app.close()
    with pytest.raises(AssertionError, match="server_stopped"):
        await task
    again = await serve(SCRIPT, shop.tools, journal)
    whole = await again.events(response)
    assert whole[-1]["type"] == "response.completed" and shop.paid == [5]


async def test_runs_without_a_way_back_are_not_written(serve: Any) -> None:
    journal, shop = Spy(), Shop()
    server = await serve([say("Hi."), say("Hi.")], shop.tools, journal)
    await server.post(input="Hi", store=False)
    await server.post(input="Hi", include=["message.output_text.logprobs"], top_logprobs=1)
    assert journal.all == []


async def test_a_run_ends_without_a_write_only_while_the_lease_is_fresh() -> None:
    now, store = 0.0, Spy()
    writer = JournalWriter(store, clock=lambda: now)
    await writer.start()
    run = writer.begin("r", {})
    await until(lambda: store.count == 1)
    run.add("call", "unwritten")
    assert await writer.is_ours(run)
    assert len(store.all) == 1, "the lease says so"
    store.leave(writer.owner)
    assert store.claim("r", "another")
    now = writing.FRESH_SECONDS
    assert not await writer.is_ours(run)
    await writer.aclose()


def test_any_text_can_be_kept() -> None:
    about = {"half of a pair": "\ud800", "zero": "\0", "other": "\u00e9\U0001f600"}
    assert recorded("r", [begun(about)]).about == about


class Recovering(Failing):
    """A journal that, once it works again, renews a lease only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.renews, self.may_renew = threading.Event(), threading.Event()
        self.may_renew.set()

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        if not self.fails:
            self.renews.set()
            assert self.may_renew.wait(20)
        super().renew(owner, seconds)


@pytest.fixture
async def recovering(quick: None) -> AsyncIterator[tuple[Recovering, JournalWriter]]:
    """A journal that has failed, and its writer."""
    store = Recovering()
    writer = JournalWriter(store)
    await writer.start()
    store.fails = True
    writer._failed(JournalUnavailable("the disk is full"))
    yield store, writer
    store.may_renew.set()
    await writer.aclose()


async def works_again(store: Recovering) -> None:
    """Return while the writer, which has something to write, finds that the store works again."""
    tries = store.tries
    await until(lambda: store.tries >= tries + 2)
    store.renews.clear()
    store.may_renew.clear()
    store.fails = False
    await until(store.renews.is_set)


async def test_a_run_that_ends_while_the_journal_recovers_leaves_nothing(
    recovering: tuple[Recovering, JournalWriter],
) -> None:
    store, writer = recovering
    run = writer.begin("ended", {})
    await works_again(store)
    run.finish()
    store.may_renew.set()
    await until(lambda: writer.trouble is None)
    await writer.aclose()
    assert store.count == 0 and store.all == []


async def test_a_call_is_not_made_twice_that_was_made_while_the_journal_recovered(
    recovering: tuple[Recovering, JournalWriter],
) -> None:
    """The next server must not find the run in the state that it had before the call."""
    store, writer = recovering
    run = writer.begin("paid", {})
    await works_again(store)
    run.add("call", "pay-0")
    await writer.record(run)  # from here on the call is made
    store.may_renew.set()
    await until(lambda: writer.trouble is None)
    assert store.load("paid") == []


async def test_a_deletion_that_fails_is_tried_again(
    recovering: tuple[Recovering, JournalWriter],
) -> None:
    store, writer = recovering
    store.fails = False
    run = writer.begin("ended", {})
    await until(lambda: store.count == 1)
    store.fails, tries = True, store.tries
    run.finish()
    await until(lambda: store.tries >= tries + 2)
    store.fails = False
    await until(lambda: store.count == 0)


async def test_a_run_may_have_the_name_of_one_that_ended_just_now(
    recovering: tuple[Recovering, JournalWriter],
) -> None:
    store, writer = recovering
    store.fails = False
    first = writer.begin("same", {"number": 1})
    await until(lambda: store.count == 1 and writer.trouble is None)
    first.finish()
    second = writer.begin("same", {"number": 2})
    await writer.record(second)
    assert not second.dropped
    assert recorded("same", store.load("same")).about == {"number": 2}


async def test_runs_are_taken_over_although_the_journal_fails_between_them() -> None:
    class Between(Failing):
        def load(self, run: str) -> list[str]:
            self.fails = run == "b" and self.tries == 0
            try:
                return super().load(run)
            finally:
                self.fails = False

    entries = [Entry(run, 0, begun({})) for run in "abc"]
    store = Between(entries)
    writer = JournalWriter(store, clock=lambda: now)
    now, later = 0.0, list[Recorded]()
    writer.on_left_behind = later.extend
    found = await writer.start()
    assert [record.run_id for record in found] == ["a"]
    now = 1000.0
    writer.begin("own", {})  # something to write, after which the lease is renewed
    await until(lambda: later)
    assert [record.run_id for record in later] == ["b", "c"]
    await writer.aclose()
