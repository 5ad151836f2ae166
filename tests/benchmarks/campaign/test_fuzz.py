"""A short fuzz campaign finds nothing; a server that fails is found."""

import pytest

from benchmarks.campaign.fuzz import run as fuzz
from caesura.runtime.journal.store import SqliteJournal
from caesura.runtime.server.api.chat import ChatCompletions
from caesura.scheduler.vllm.engine.control import Commands

SMALL = {"BODIES": 120, "PLANS": 500, "TEXTS": 40, "MESSAGES": 40, "FILES": 40, "JOURNALS": 80}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in SMALL.items():
        monkeypatch.setattr(fuzz, name, count)


@pytest.mark.parametrize(
    "index",
    [*range(6), *(pytest.param(index, marks=pytest.mark.slow) for index in range(6, 40))],
)
def test_inputs_are_answered_or_refused(index: int) -> None:
    outcome = fuzz.run(3, index)
    assert outcome.sessions >= 40
    assert not outcome.defects, outcome.defects[0].seen


def test_a_server_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ChatCompletions, "answer", broken)
    outcome = fuzz.run(3, 0)
    assert any("status 500" in one.seen for one in outcome.defects)


def test_a_reply_that_cannot_leave_the_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commands, "run", lambda self, command: {"number": 10**300})
    outcome = fuzz.run(3, 3)
    assert any("cannot be sent" in one.seen for one in outcome.defects)


def test_a_journal_that_is_read_over_a_gap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load = SqliteJournal.load
    monkeypatch.setattr(SqliteJournal, "load", lambda *given: [*filter(None, load(*given))])
    outcome = fuzz.run(3, 5)
    assert any("were paid before" in one.seen for one in outcome.defects)
