"""Requests reach engines once each, whatever happens to the engines."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from caesura.planning.application.requests import Request
from caesura.planning.run.client import Client, Question
from caesura.planning.run.dispatch import Dispatcher, ModelFinished, Notice, ReplicaLost, Work
from caesura.planning.run.journal import Journal
from tests.planning.run.applications import application, question, request, requests
from tests.planning.run.engines import FakeEngine


class World:
    def __init__(self, work: Work, journal: Journal, dispatcher: Dispatcher) -> None:
        self.work, self.journal, self.dispatcher = work, journal, dispatcher
        self.notices: asyncio.Queue[Notice] = asyncio.Queue()
        self.engines: list[FakeEngine] = []

    async def engine(self, name: str, **options: float) -> FakeEngine:
        engine = FakeEngine(**options)  # type: ignore[arg-type]
        self.engines.append(engine)
        self.dispatcher.add(name, name.partition("-")[0], await engine.start())
        return engine

    async def until(self, notice: type[Notice]) -> Notice:
        async with asyncio.timeout(10):
            while not isinstance(told := await self.notices.get(), notice):
                pass
        return told


@asynccontextmanager
async def world(
    tmp_path: Path, *asked: Request, questions=question, **options: int
) -> AsyncIterator[World]:
    journal = Journal(tmp_path / "out.jsonl", application("a", "b"))
    journal.start()
    work = Work(asked, journal.done)
    async with Client() as client:
        made = World(
            work,
            journal,
            Dispatcher(
                work,
                journal,
                client.ask,
                questions,
                lambda notice: made.notices.put_nowait(notice),
                **options,
            ),
        )
        made.dispatcher.start()
        try:
            yield made
        finally:
            await made.dispatcher.close()
            for engine in made.engines:
                await engine.stop()
            journal.close()


async def test_each_request_is_done_once_and_those_that_need_it_follow(tmp_path: Path) -> None:
    asked = (request("a/0"), request("a/1", "a/0"), request("b/0", "a/0", "a/1"))
    async with world(tmp_path, *asked) as here:
        await here.engine("a-0")
        b = await here.engine("b-0")
        while here.work.unfinished:
            await here.until(ModelFinished)
        assert here.work.done["a/1"].output == "<a/1 <a/0>>"
        assert b.asked == ["b/0 <a/0> <a/1 <a/0>>"]
        result = here.work.done["b/0"]
        assert (result.replica, result.finish) == ("b-0", "stop")
        assert result.output_tokens == len(result.output)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3


async def test_replicas_share_requests_evenly_within_their_bound(tmp_path: Path) -> None:
    async with world(tmp_path, *requests("a", rows=20), max_in_flight=4) as here:
        first = await here.engine("a-0", seconds=0.02)
        second = await here.engine("a-1", seconds=0.02)
        await here.until(ModelFinished)
        assert first.most_in_flight == second.most_in_flight == 4
        assert len(first.asked) + len(second.asked) == 20
        assert min(len(first.asked), len(second.asked)) >= 8


async def test_a_new_replica_takes_over_its_share_of_what_runs(tmp_path: Path) -> None:
    async with world(tmp_path, *requests("a", rows=9)) as here:
        first = await here.engine("a-0")
        first.held.clear()
        await first.until_asked(9)
        second = await here.engine("a-1")
        second.held.clear()
        await second.until_asked(4)
        assert set(second.asked) == {f"a/{n}" for n in (5, 6, 7, 8)}
        first.held.set()
        second.held.set()
        await here.until(ModelFinished)
        assert {r.key for r in here.work.done.values() if r.replica == "a-1"} == set(second.asked)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 9


async def test_requests_that_are_taken_over_before_they_are_sent_are_not_lost(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, *requests("a", rows=6)) as here:
        endpoints = [await FakeEngine.started(here.engines) for _ in range(3)]
        for number, endpoint in enumerate(endpoints):  # no task runs between these
            here.dispatcher.add(f"a-{number}", "a", endpoint)
        await here.until(ModelFinished)
        assert len(here.work.done) == 6
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6


async def test_requests_of_a_lost_engine_are_done_by_another(tmp_path: Path) -> None:
    async with world(tmp_path, *requests("a", rows=6)) as here:
        first = await here.engine("a-0")
        first.held.clear()
        await first.until_asked(6)
        await first.stop()
        lost = await here.until(ReplicaLost)
        assert isinstance(lost, ReplicaLost) and lost.replica == "a-0"
        await here.dispatcher.lose("a-0")
        await here.engine("a-1")
        await here.until(ModelFinished)
        assert {result.replica for result in here.work.done.values()} == {"a-1"}
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6


async def test_a_drained_engine_keeps_its_requests_for_a_time_only(tmp_path: Path) -> None:
    async with world(tmp_path, *requests("a", rows=4), max_in_flight=2) as here:
        first = await here.engine("a-0")
        first.held.clear()
        await first.until_asked(2)
        draining = asyncio.ensure_future(here.dispatcher.drain("a-0", 5.0))
        await asyncio.sleep(0.01)
        first.held.set()
        await draining
        assert len(first.asked) == 2, "a drained engine is sent no more requests"
        second = await here.engine("a-1")
        second.held.clear()
        await second.until_asked(2)
        await here.dispatcher.drain("a-1", 0.01)
        assert here.work.ready("a") == 2, "requests that were cut off wait again"
        await here.engine("a-2")
        await here.until(ModelFinished)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4


def needs_json(asked: Request, outputs: Mapping[str, str]) -> Question:
    if outputs:
        raise ValueError("the output of a/0 is no JSON")
    return question(asked, outputs)


async def test_an_output_that_cannot_be_used_fails_what_needs_it(tmp_path: Path) -> None:
    asked = (request("a/0"), request("a/1"), request("b/0", "a/0"), request("b/1", "b/0"))
    async with world(tmp_path, *asked, questions=needs_json) as here:
        await here.engine("a-0")
        await here.engine("b-0")
        while here.work.unfinished:
            await here.until(ModelFinished)
        done = here.work.done
        assert done["a/0"].output and done["a/1"].output
        assert done["b/0"].error.endswith("ValueError: the output of a/0 is no JSON")
        assert done["b/1"].error == "it needs b/0, which failed"


async def test_a_refused_request_fails_what_needs_it_in_a_later_run_too(tmp_path: Path) -> None:
    asked = (request("a/0"), request("b/0", "a/0"))
    async with world(tmp_path, *asked[:1]) as here:
        (await here.engine("a-0")).status = 400
        await here.until(ModelFinished)
        assert "status 400" in here.work.done["a/0"].error
    async with world(tmp_path, *asked) as here:
        await here.until(ModelFinished)
        assert here.work.done["b/0"].error == "it needs a/0, which failed"


async def test_a_busy_engine_is_asked_again(tmp_path: Path) -> None:
    async with world(tmp_path, request("a/0")) as here:
        engine = await here.engine("a-0")
        engine.status = 503
        await engine.until_asked(1)
        engine.status = 200
        await here.until(ModelFinished)
        assert here.work.done["a/0"].output == "<a/0>"
        assert len(engine.asked) == 2
