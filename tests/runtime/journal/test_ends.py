"""However a run ends, nothing of it is left in the journal, unless it goes on elsewhere."""

import asyncio
from typing import Any

import pytest

from caesura.runtime.server.api import chat_kept
from caesura.runtime.server.responses.store import SqliteResponses, Stored
from caesura.runtime.testing import say
from tests.kit.server import MODEL
from tests.kit.waiting import until
from tests.runtime.journal.dying import LoggingEngine, Shop, Spy
from tests.runtime.journal.paying import SAID, SCRIPT, chat

pytestmark = pytest.mark.usefixtures("written_to_the_end")


class Holding(LoggingEngine):
    """An engine that holds each session before its text, and before its end, until it is let go."""

    def __init__(self) -> None:
        self.begun, self.ending = asyncio.Event(), asyncio.Event()
        self.may_go_on, self.may_end = asyncio.Event(), asyncio.Event()
        super().__init__([say("Hello."), say("Hello.")], model=MODEL, pace=self._wait)

    async def _wait(self, event: Any) -> None:
        self.begun.set()
        await self.may_go_on.wait()

    def open(self, *given: Any) -> Any:
        session = super().open(*given)
        close = session.close

        async def closed(**options: Any) -> None:
            self.ending.set()
            await self.may_end.wait()
            await close(**options)

        session.close = closed
        return session


async def test_a_refused_request_leaves_no_run(serve: Any) -> None:
    engine, journal = Holding(), Spy()
    engine.may_end.set()
    server = await serve(engine, journal=journal, max_concurrent=1)
    first = asyncio.create_task(server.post(input="Hi."))
    await engine.begun.wait()
    with pytest.raises(AssertionError, match="too_many_requests"):
        await server.post(input="Hi.")
    engine.may_go_on.set()
    await first
    await until(lambda: journal.count == 0)
    assert len({entry.run_id for entry in journal.all}) == 1


async def test_a_run_that_is_cancelled_twice_leaves_nothing(serve: Any) -> None:
    engine, journal = Holding(), Spy()
    server = await serve(engine, journal=journal)
    made = await server.post(input="Hi.", background=True)
    await until(lambda: journal.count == 1)
    cancel = f"/v1/responses/{made['id']}/cancel"
    first = asyncio.create_task(server.post(cancel))
    await engine.ending.wait()
    run = server.app._responses.runs.of(made["id"], None)
    run._task.cancel()  # as a second request to cancel it does
    await asyncio.sleep(0)
    engine.may_end.set()
    await first
    await until(lambda: journal.count == 0)
    await until(lambda: run.part.feed.is_ended)
    assert (await server.get(f"/v1/responses/{made['id']}"))["status"] == "cancelled"


async def test_a_run_whose_end_fails_leaves_nothing(serve: Any) -> None:
    class Odd(SqliteResponses):
        def put(self, stored: Stored) -> None:
            raise RuntimeError("it cannot be stored")

    journal = Spy()
    server = await serve([say("Hello.")], journal=journal, store=Odd(None))
    with pytest.raises(AssertionError, match="error"):
        await server.post(input="Hi.")
    await until(lambda: journal.all and journal.count == 0)


async def answered(serve: Any) -> tuple[dict[str, Any], Spy]:
    """A completion with a key whose server was killed before the run was deleted, and a journal.

    The answer is one that the client has.
    """
    journal, shop = Spy(), Shop()
    server = await serve(SCRIPT, shop.tools, journal)
    answer = await chat(server)
    await until(lambda: journal.count == 0)
    return answer, Spy(journal.all)


async def test_an_answer_waits_for_its_client_in_the_next_process(serve: Any) -> None:
    answer, journal = await answered(serve)
    shop = Shop("fail")
    server = await serve(SCRIPT, shop.tools, journal)
    again = await chat(server)
    assert (again["id"], again["choices"]) == (answer["id"], answer["choices"])
    assert shop.paid == [] and server.engine.decoded == 0
    await until(lambda: journal.count == 0)


async def test_an_answer_that_nobody_comes_for_is_deleted(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_kept, "KEPT_SECONDS", 0.0)
    _, journal = await answered(serve)
    shop = Shop("fail")
    server = await serve([*SCRIPT, *SCRIPT], shop.tools, journal)
    await until(lambda: journal.count == 0)
    assert shop.paid == []
    await chat(server)
    assert shop.paid == [5], "the key is free"


async def test_an_answer_whose_client_left_is_deleted(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_kept, "KEPT_SECONDS", 0.0)
    journal, shop = Spy(), Shop()
    server = await serve(SCRIPT, shop.tools, journal)
    key = {"Idempotency-Key": "k"}
    asking = server.http.post("/v1/chat/completions", json=SAID, headers=key)
    leaving = asyncio.create_task(asking.__aenter__())
    await until(lambda: shop.paid)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until(lambda: journal.count == 0)
