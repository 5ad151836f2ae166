"""The real campaign counts its faults, fails with any of its tasks, and finds nothing in short."""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.campaign.__main__ import main
from benchmarks.campaign.real import run as real
from benchmarks.campaign.real.clients import MANNERS, Clients
from benchmarks.campaign.real.faults import (
    DISK_FULL,
    ENGINE_KILLED,
    MOST_DEATHS,
    SERVER_KILLED,
    TOOL_SERVER_KILLED,
    WORKER_KILLED,
    Faults,
)
from benchmarks.campaign.real.odd_tools import NOTE, ODD
from benchmarks.campaign.real.rest import Usage, growths, runs_in_journal
from benchmarks.campaign.real.server import until
from benchmarks.campaign.report import Outcome
from caesura.runtime.journal.record import begun, encoded
from caesura.runtime.journal.store import Entry, SqliteJournal

SHORT = ["real", "--seed", "1", "--budget", "90", "--every", "4"]
SHORT_FAULTS = (ENGINE_KILLED, SERVER_KILLED, DISK_FULL, TOOL_SERVER_KILLED, WORKER_KILLED)


class Nothing:
    """A server that needs no process: nothing is there to be struck but itself."""

    def __init__(self, folder: Path) -> None:
        self.notes, self.odd = folder / "notes", folder / "odd"
        self.notes.touch()
        self.life, self.down, self.killed, self.asked = 0, False, 0, 0

    async def kill(self) -> None:
        self.killed += 1

    async def ready(self) -> None:
        self.asked += 1

    def usage(self) -> dict[str, tuple[float, int]]:
        return {"server": (100.0, 10)}

    def holds(self) -> tuple[int, int]:
        return 10, 1

    def workers(self) -> list[Any]:
        return []

    def end_of_log(self) -> str:
        return "the end of its log"


async def strike(server: Nothing, kinds: list[str], strikes: int) -> Faults:
    """Strike so many times."""
    faults, ending = Faults(server, random.Random(0), kinds), asyncio.Event()  # type: ignore[arg-type]

    async def ready() -> None:
        server.asked += 1
        if server.asked == strikes:
            ending.set()

    server.ready = ready  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        await faults.go(0.001, ending)
    return faults


async def test_only_what_was_struck_is_counted(tmp_path: Path) -> None:
    server = Nothing(tmp_path)
    faults = await strike(server, [SERVER_KILLED, WORKER_KILLED], 20)
    assert +faults.happened == {SERVER_KILLED: server.killed} and server.killed >= 2
    assert server.asked == 20, "each fault is followed by a wait for /ready"


async def test_engines_do_not_die_so_often_that_it_is_a_crash_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kill(self: Faults) -> bool:
        self._deaths.append(asyncio.get_running_loop().time() + 1e9)
        return True

    monkeypatch.setattr(Faults, "_kill_engine", kill)
    faults = await strike(Nothing(tmp_path), [ENGINE_KILLED, WORKER_KILLED], 40)
    assert faults.happened[ENGINE_KILLED] == MOST_DEATHS


def test_only_answers_that_wait_for_a_client_with_a_key_may_be_left(tmp_path: Path) -> None:
    store, resumed = SqliteJournal(tmp_path / "journal.sqlite"), encoded("resumed", 0)
    bodies = {
        "chatcmpl-kept": [begun({}), resumed],
        "chatcmpl-left": [begun({})],
        "resp-left": [begun({}), resumed],
    }
    entries = [
        Entry(run, number, body) for run, each in bodies.items() for number, body in enumerate(each)
    ]
    store.append("owner", entries)
    store.close()
    left, kept = runs_in_journal(tmp_path / "journal.sqlite")
    assert left == ["chatcmpl-left: begin", "resp-left: begin resumed"] and kept == 1


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A campaign against no process; its clients ask until they are cancelled."""

    @asynccontextmanager
    async def serving(folder: Path) -> AsyncIterator[Nothing]:
        yield Nothing(folder)

    async def nothing(self: Clients, *given: object) -> None:
        return None

    async def asking(self: Clients, *given: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(real, "serving", serving)
    monkeypatch.setattr(Clients, "undisturbed", nothing)
    monkeypatch.setattr(Clients, "go", asking)
    return ["real", "--every", "0.001", "--report", str(tmp_path / "report")]


def told(campaign: list[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((Path(campaign[-1]) / "real.json").read_text())
    return report


@pytest.mark.parametrize("task", ["watch", "decline", "_strike"])
def test_an_error_of_any_task_fails_the_campaign(
    campaign: list[str], monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    async def failing(*given: object) -> None:
        raise OSError(f"the end of {task}")

    monkeypatch.setattr(real, task, failing)
    # Without the others' own faults: the server of this test has no processes.
    assert main([*campaign[:1], "--faults", SERVER_KILLED, *campaign[1:]]) == 1
    (defect,) = told(campaign)["seen"]
    assert defect["kind"] == "broken" and f"the end of {task}" in defect["seen"]


def test_a_chosen_fault_that_never_happened_is_told(
    campaign: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def no_judgement(self: real.Campaign) -> None:
        self._count(Faults(self.server, random.Random(0), [SERVER_KILLED]))

    monkeypatch.setattr(real.Campaign, "go", no_judgement)
    monkeypatch.setattr(real.Campaign, "stopped", lambda self: None)
    assert main([*campaign[:1], "--faults", f"{SERVER_KILLED},tool lies", *campaign[1:]]) == 1
    assert told(campaign)["never_happened"] == [SERVER_KILLED, "tool lies"]
    assert "**Chosen, and never happened:**" in (Path(campaign[-1]) / "real.md").read_text()
    assert "never happened: server killed, tool lies" in capsys.readouterr().err


class Worker:
    """A process that can be killed."""

    def kill(self) -> None:
        """Nothing is there to end."""


@pytest.mark.parametrize(("idle", "longer"), [(5, 60.0), (10**9, 0.3)])
def test_a_campaign_lasts_longer_where_a_fault_has_not_happened_in_its_budget(
    campaign: list[str], monkeypatch: pytest.MonkeyPatch, idle: int, longer: float
) -> None:
    looked = itertools.count()

    def workers(self: Nothing) -> list[Any]:
        return [] if next(looked) < idle else [Worker()]

    async def asking(self: Clients, http: object, goes_on: Callable[[int], bool]) -> None:
        await until(lambda: not goes_on(0), 60)

    async def at_rest(*given: object) -> list[str]:
        return []

    monkeypatch.setattr(Nothing, "workers", workers)
    monkeypatch.setattr(Clients, "go", asking)
    monkeypatch.setattr(real, "watch", at_rest)
    monkeypatch.setattr(real, "decline", at_rest)
    monkeypatch.setattr(real, "left_behind", at_rest)
    monkeypatch.setattr(real, "LONGER_SECONDS", longer)
    monkeypatch.setattr(real.Campaign, "stopped", lambda self: None)
    kinds = ["--faults", f"{SERVER_KILLED},{WORKER_KILLED}", "--budget", "0"]
    happens = idle < 10**9
    assert main([campaign[0], *kinds, *campaign[1:]]) == (0 if happens else 1)
    assert told(campaign)["never_happened"] == ([] if happens else [WORKER_KILLED])
    assert told(campaign)["seen"] == []


async def test_no_server_and_no_engine_is_killed_while_it_is_calm(tmp_path: Path) -> None:
    server, kinds = Nothing(tmp_path), [SERVER_KILLED, WORKER_KILLED]
    faults = Faults(server, random.Random(0), kinds)  # type: ignore[arg-type]
    faults.calm_from = 0.0
    assert {faults._draw() for _ in range(50)} == {WORKER_KILLED}
    faults.calm_from = float("inf")
    assert {faults._draw() for _ in range(50)} == set(kinds)


async def test_kills_leave_a_server_twice_the_time_that_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, server, killed = [0.0], Nothing(tmp_path), list[float]()

    async def kill() -> None:
        now[0] += 30
        killed.append(now[0])

    def workers() -> list[Any]:
        now[0] += 1
        return []

    monkeypatch.setattr(server, "kill", kill)
    monkeypatch.setattr(server, "workers", workers)
    monkeypatch.setattr("benchmarks.campaign.real.faults.monotonic", lambda: now[0])
    await strike(server, [SERVER_KILLED, WORKER_KILLED], 400)
    between = [second - first - 30 for first, second in itertools.pairwise(killed)]
    assert len(between) > 2 and min(between) >= 60


async def test_a_short_campaign_meets_all_manners_and_all_odd_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []

    async def ask(
        self: Clients, http: object, question: str, manner: str, key: str, chosen: str
    ) -> str:
        met.append(chosen or manner)
        return "answered"

    monkeypatch.setattr(Clients, "_ask", ask)
    outcome = Outcome(runs=1)
    clients = Clients(Nothing(tmp_path), random.Random(0), outcome, print)  # type: ignore[arg-type]
    await clients.go(None, lambda sessions: sessions < 40)  # type: ignore[arg-type]
    assert set(met) == {NOTE, "environment", *ODD, *set(MANNERS) - {"note", "odd", "environment"}}


def life(name: str, begin: int, end: int, start: float, by_hour: float) -> list[Usage]:
    """A process that fills its caches for half of its life, and then grows by so much."""
    middle = (begin + end) / 2
    return [
        Usage(
            second,
            name,
            start + 100 * (second < middle) + by_hour * max(0, second - middle) / 3600,
            20,
        )
        for second in range(begin, end, 10)
    ]


def test_growth_is_that_of_the_last_half_of_each_life() -> None:
    lives = [
        *life("server, 1", 0, 7200, 600, 1),
        *life("engine, 2", 0, 300, 500, 900),
        *life("engine, 3", 300, 7200, 500, 90),
    ]
    server, engine = growths(lives)
    assert (server.process, engine.process) == ("server, 1", "engine, 3"), "2 lived too shortly"
    assert round(server.megabytes_per_hour, 3) == 1 and server.flat
    assert round(engine.megabytes_per_hour, 3) == 90 and not engine.flat
    opened = [one._replace(descriptors=one.seconds // 100) for one in life("x", 0, 3600, 9, 0)]
    assert [round(one.descriptors_per_hour) for one in growths(opened)] == [36]
    assert not growths(opened)[0].flat


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_campaign_finds_nothing(tmp_path: Path) -> None:
    chosen = ["--faults", ",".join((*SHORT_FAULTS, *real.TOOL_FAULTS))]
    code = main([*SHORT, *chosen, "--report", str(tmp_path)])
    report = json.loads((tmp_path / "real.json").read_text())
    assert report["seen"] == [] and report["never_happened"] == [] and code == 0
    assert set(SHORT_FAULTS) <= report["faults"].keys()
    assert sum(end.endswith("equal") for end in report["ends"]) >= 3
