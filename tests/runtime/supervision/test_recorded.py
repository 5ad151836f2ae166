"""Entries of a recording for an engine that died."""

import asyncio
from typing import Any

from caesura.runtime.cli.serve import supervisor_of
from caesura.runtime.cli.serve_options import LifetimeOptions
from caesura.runtime.errors import EngineFailed
from caesura.runtime.server.load.gate import QueueBound
from caesura.runtime.supervision import Readiness, RecordedRestarts
from caesura.runtime.testing import ScriptedEngine
from tests.kit.waiting import until


class Taken:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, entries: Any) -> None:
        self.entries += entries


class Times:
    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def __call__(self) -> float:
        return self._times.pop(0)


def recorded(*times: float) -> tuple[RecordedRestarts, Taken]:
    taken = Taken()
    return RecordedRestarts(taken, Times(*times)), taken  # type: ignore[arg-type]


def test_a_restart_has_its_reason_its_starts_and_its_time() -> None:
    restarts, taken = recorded(100.0, 103.0, 110.0)
    restarts.tell("died", "it was killed", 0.0)
    restarts.tell("died", "no memory is free", 0.0)
    restarts.tell("restarted", "no memory is free", 5.0)
    same = {"kind": "restart", "at": 100.0, "why": "it was killed"}
    assert taken.entries == [
        same | {"attempts": 0, "seconds": None, "state": "down"},
        same | {"attempts": 1, "seconds": None, "state": "down"},
        same | {"attempts": 2, "seconds": 10.0, "state": "restarted"},
    ]


def test_an_engine_that_is_given_up_has_no_time() -> None:
    restarts, taken = recorded(100.0, 101.0, 200.0, 201.0)
    restarts.tell("hung", "no answer", 0.0)
    restarts.tell("restarted", "no answer", 1.0)
    restarts.tell("died", "it was killed", 0.0)
    restarts.tell("gave_up", "a crash loop", 0.0)
    assert [each["seconds"] for each in taken.entries] == [None, 1.0, None, None]
    assert [each["state"] for each in taken.entries] == ["down", "restarted", "down", "given up"]
    assert (taken.entries[3]["why"], taken.entries[3]["attempts"]) == ("a crash loop", 0)


def test_a_hung_engine_died_when_it_fell_silent() -> None:
    restarts, taken = recorded(100.0, 105.0)
    restarts.tell("hung", "it has not answered for 30 s", 30.0)
    restarts.tell("restarted", "it has not answered for 30 s", 5.0)
    assert [(each["at"], each["seconds"]) for each in taken.entries] == [(70.0, None), (70.0, 35.0)]


async def test_caesura_serve_records_the_restarts_of_its_engine() -> None:
    engine, taken, readiness = ScriptedEngine(), Taken(), Readiness(Times(*range(100)))
    recorder: Any = taken
    supervisor = supervisor_of(engine, None, readiness, LifetimeOptions(), QueueBound(), recorder)
    watching = asyncio.ensure_future(supervisor.run())
    engine.die(EngineFailed("it was killed"))
    await until(lambda: len(taken.entries) == 2)
    down, entry = taken.entries
    assert (down["state"], down["at"]) == ("down", entry["at"])
    assert (entry["kind"], entry["why"], entry["attempts"]) == ("restart", "it was killed", 1)
    assert entry["seconds"] >= 0
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
