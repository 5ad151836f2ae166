"""The measurement of the page: its traffic, the pages that it compares, and its tables."""

import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.page.crowd import Crowd
from benchmarks.page.exports import BEGAN, Size, exported, recorded
from benchmarks.page.live import Seen
from benchmarks.page.opened import Opened
from benchmarks.page.pages import WORKING_TREE, page_of
from benchmarks.page.tab import LEFT_OUT, Smoothness, Tab, quantile
from benchmarks.page.tables import live_table, opened_table
from caesura.runtime.recording.entries import Entry
from caesura.scheduler.records import KINDS, parse


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return [one for tick in Crowd(12, BEGAN).sessions(200) for one in tick]


def rows(entries: list[Entry]) -> list[tuple[float, str, str]]:
    lanes = (entry for entry in entries if entry["kind"] == "lanes")
    return [
        row for one in lanes for row in zip(one["at"], one["request"], one["state"], strict=True)
    ]


def test_a_crowd_writes_every_kind_of_record_that_an_engine_writes(entries: list[Entry]) -> None:
    written = {"forecast", "opening", "pause", "session", "lanes", "wait", "steps", "span"}
    assert {entry["kind"] for entry in entries} == written <= set(KINDS)
    for entry in entries:
        parse(entry)
        if entry["kind"] in ("lanes", "steps"):  # the page leaves out what is not even
            columns = [value for value in entry.values() if isinstance(value, list)]
            assert {len(column) for column in columns} == {len(entry["at"])}


def test_a_crowd_stays_as_large_as_it_is(entries: list[Entry]) -> None:
    here: set[str] = set()
    sizes = []
    for _, request, state in rows(entries):
        here = here - {request} if state == "ended" else here | {request}
        sizes.append(len(here))
    assert max(sizes) == 12
    assert min(sizes[len(sizes) // 2 :]) >= 11


def test_a_crowd_tells_of_times_in_their_order(entries: list[Entry]) -> None:
    times = [at for at, *_ in rows(entries)]
    assert times == sorted(times)
    steps = [at for entry in entries if entry["kind"] == "steps" for at in entry["at"]]
    assert all(earlier < later for earlier, later in pairwise(steps))


def test_the_same_seed_makes_the_same_crowd(entries: list[Entry]) -> None:
    again = [one for tick in Crowd(12, BEGAN).sessions(200) for one in tick]
    assert json.dumps(again) == json.dumps(entries)


def test_content_makes_a_recording_as_large_as_asked(tmp_path: Path) -> None:
    small, large = Size("small", 40), Size("large", 40, 4000)
    without, with_ = recorded(small, tmp_path), recorded(large, tmp_path)
    answers = sum(
        1
        for one in json.loads(with_.path.read_text())["recordings"][0]["data"]
        if one["kind"] == "span" and one["name"].startswith("chat")
    )
    grown = with_.path.stat().st_size - without.path.stat().st_size
    assert answers > 40 and grown == pytest.approx(4000 * answers, rel=0.1)


def test_a_page_is_that_of_its_revision(tmp_path: Path) -> None:
    now = page_of(WORKING_TREE, tmp_path)
    assert now.page.script == Path("runtime/static/ui.js").read_text()
    with pytest.raises(SystemExit, match="no-such-commit"):
        page_of("no-such-commit", tmp_path)


def test_an_export_holds_the_page_and_the_recording(tmp_path: Path) -> None:
    written = recorded(Size("few", 5), tmp_path)
    path = exported(written, page_of(WORKING_TREE, tmp_path), tmp_path)
    text = path.read_text()
    assert 'id="caesura-data"' in text and "Content-Security-Policy" in text
    assert path.stat().st_size < written.path.stat().st_size + 2_000_000


def smooth(rate: float) -> Smoothness:
    return Smoothness(rate, 1000 / rate, 3000 / rate, 0.5, 40.0)


def test_the_table_of_views_has_medians_of_both_pages() -> None:
    before, after = Seen(), Seen()
    before.views["session"] = [smooth(7), smooth(8), smooth(30)]
    after.views["session"] = [smooth(40)]
    after.views["overview"] = [smooth(50)]
    lines = live_table(before, after).splitlines()
    assert lines[2] == "| session | 8 → 40 | 125 ms → 25 ms | 375 ms → 75 ms | 50 % → 50 % |"
    assert lines[3] == "| overview | 50 | 20 ms | 60 ms | 50 % |"


def test_the_table_of_files_tells_what_a_page_says_and_what_is_blank() -> None:
    before = [Opened(1.5, 2.0, 200.0, {"view session": math.nan})]
    after = [Opened(1.0, 2.0, 100.0, {"view session": 0.25})]
    broken = [Opened(0.5, 1.0, 20.0, said="too large")]
    table = opened_table([("few", before, after), ("many", broken, after)])
    assert "| few | CPU time to load | 1.50 s | 1.00 s |" in table
    assert "|  | view session | blank | 0.25 s |" in table
    assert "|  | what it says | too large | – |" in table


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 3
    assert quantile([1], 0.95) == 1


@pytest.mark.parametrize("note", ["1 602 entries of this recording could not be read and are", ""])
async def test_what_a_page_leaves_out_is_no_measurement(note: str) -> None:
    class Notes:
        async def all_inner_texts(self) -> list[str]:
            return ["A recording is still growing.", note]

    page: Any = SimpleNamespace(locator=lambda _: Notes())
    measured = Tab(page, page)
    if note:
        with pytest.raises(SystemExit, match="1 602 entries"):
            await measured.demand_all()
    else:
        await measured.demand_all()


def test_the_page_says_what_it_leaves_out_in_the_words_that_are_looked_for() -> None:
    assert LEFT_OUT in Path("ui/src/app/notes.tsx").read_text()
