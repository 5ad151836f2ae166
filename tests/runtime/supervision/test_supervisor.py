"""Supervising an engine in memory, on a clock of the test's own."""

import asyncio
from contextlib import suppress

import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.run.context import until_alive
from caesura.runtime.supervision import (
    EngineLost,
    EngineProcess,
    Phase,
    Readiness,
    RestartRules,
    Supervisor,
)
from caesura.runtime.testing import ScriptedEngine
from caesura.scheduler.messages import SessionSpec
from tests.kit.waiting import until

RULES = RestartRules(first_seconds=1.0, ceiling_seconds=8.0, most_deaths=4, window_seconds=1000.0)
HELLO = [{"role": "user", "content": "Hello"}]


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Supervised:
    def __init__(self, engine, rules=RULES, **process):
        self.engine = engine
        self.time = Time()
        self.readiness = Readiness(self.time)
        self.told = []
        self.supervisor = Supervisor(
            engine,
            self.readiness,
            rules=rules,
            process=EngineProcess(**process),
            tell=lambda what, why, seconds: self.told.append((what, why)),
            clock=self.time,
            sleep=self.time.sleep,
        )
        self.task = asyncio.ensure_future(self.supervisor.run())

    def dies(self, why="it was killed"):
        self.engine.die(EngineFailed(why))


@pytest.fixture
async def supervised():
    running = []

    def start(engine, **options):
        running.append(Supervised(engine, **options))
        return running[-1]

    yield start
    for each in running:
        each.task.cancel()
        with suppress(asyncio.CancelledError, EngineLost):
            await each.task


class Failing(ScriptedEngine):
    """An engine that does not start again."""

    async def restart(self):
        raise EngineFailed("no memory is free")


async def test_a_dead_engine_is_started_again(supervised):
    watched = supervised(ScriptedEngine())
    watched.dies()
    await until(lambda: watched.supervisor.restarts == 1)
    assert watched.engine.restarts == 1
    assert watched.told == [("died", "it was killed"), ("restarted", "it was killed")]
    assert (watched.readiness.phase, watched.readiness.not_ready) == (Phase.READY, None)
    assert watched.readiness.reason == "it was killed"


async def test_a_session_goes_on_after_the_restart(supervised):
    async def pace(event):
        if not watched.engine.restarts:
            watched.dies()

    watched = supervised(ScriptedEngine(["It goes on."], pace=pace))
    await until(lambda: watched.engine.revival.supervised)
    session = watched.engine.open(SessionSpec())
    texts = [getattr(event, "text", "") async for event in session.turn(HELLO)]
    assert "".join(texts) == "It goes on."
    assert watched.supervisor.restarts == 1


async def test_what_follows_a_restart_comes_before_the_server_is_ready(supervised):
    seen = []

    async def follow():
        seen.append(watched.readiness.phase)

    watched = supervised(ScriptedEngine(), after_restart=[follow])
    watched.dies()
    await until(lambda: watched.supervisor.restarts == 1)
    assert seen == [Phase.RESTARTING]


async def test_a_crash_loop_is_given_up(supervised):
    watched = supervised(Failing())
    watched.dies()
    with pytest.raises(EngineLost, match="crash loop, it died 4 times within 1000 s: no memory"):
        await watched.task
    assert [seconds for seconds in watched.time.slept if seconds >= 1] == [1.0, 2.0]
    assert watched.supervisor.deaths == {"died": 1, "hung": 0, "not started": 3}
    assert watched.told[-1][0] == "gave_up"
    assert watched.readiness.dead is not None
    with pytest.raises(EngineLost):
        await until_alive(watched.engine)


async def test_sessions_that_wait_fail_once_it_is_given_up(supervised):
    watched = supervised(Failing())
    await until(lambda: watched.engine.revival.supervised)
    watched.dies()
    with pytest.raises(EngineLost, match="crash loop"):
        await watched.engine.revived(EngineFailed("it was killed"))


async def test_without_restarts_the_first_death_is_the_last(supervised):
    watched = supervised(ScriptedEngine(), rules=None)
    watched.dies()
    with pytest.raises(EngineLost, match=r"not restarted \(--no-restart\): it was killed"):
        await watched.task
    assert watched.engine.restarts == 0


async def test_a_hung_engine_is_started_again(supervised):
    asked = []

    async def ask():
        asked.append(1)
        if len(asked) < 3 or watched.engine.restarts:
            return
        await asyncio.Event().wait()

    watched = supervised(ScriptedEngine(), timeout_seconds=0.02, ask=ask)
    await until(lambda: watched.supervisor.restarts == 1)
    assert watched.told[0] == ("hung", "the engine's process has not answered for 0.02 s")
    assert watched.supervisor.deaths["hung"] == 1


async def test_nothing_is_asked_with_a_time_out_of_0(supervised):
    async def ask():
        raise AssertionError

    watched = supervised(ScriptedEngine(), timeout_seconds=0, ask=ask)
    await until(lambda: len(watched.time.slept) > 100)
    assert watched.supervisor.deaths["hung"] == 0


async def test_the_time_to_retry_is_what_the_last_start_took(supervised):
    class Slow(ScriptedEngine):
        async def restart(self):
            watched.time.now += 20.0
            waited.append(watched.readiness.not_ready)
            await super().restart()

    waited = []
    watched = supervised(Slow())
    watched.readiness.start_seconds = 42.5
    watched.dies()
    await until(lambda: watched.supervisor.restarts == 1)
    assert [each.retry_seconds for each in waited] == [23]
    assert watched.readiness.start_seconds == 20.0


def test_a_server_that_drains_takes_no_work_and_lives():
    readiness = Readiness(Time())
    readiness.draining = True
    assert readiness.not_ready.status == "draining"
    assert readiness.dead is None
