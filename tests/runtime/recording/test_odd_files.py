"""Files that are somebody else's, that hold anything, or that are no files at all."""

import json
import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.cli.options import Traces
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files import read_lines, write
from caesura.runtime.recording.storage import Store
from caesura.runtime.recording.window import cut

PLAIN, SAID = Recording(1, "one", "serve", 1.0), Recording(2, "two", "serve", 1.0, content=True)
NO_TIME: tuple[Any, ...] = (None, "x", {}, [], ["a"], [{}], True)


def test_the_data_base_of_another_program_is_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE corpora (name TEXT)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="database of another program"):
        Store(path).begin("one", "serve")
    with pytest.raises(UsageError, match="database of another program"):
        catalog.recordings(path)
    assert path.read_bytes() == before


def test_a_file_that_is_named_by_mistake_is_not_moved_aside(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not to be lost")
    with pytest.raises(UsageError, match=r"notes\.txt is not a file of traces"):
        Traces(notes).check()
    for good in ("new.sqlite", "empty.sqlite", "traces.sqlite"):
        (tmp_path / "empty.sqlite").touch()
        Store(tmp_path / "traces.sqlite").begin("one", "serve")
        Traces(tmp_path / good).check()


@pytest.mark.parametrize("odd", NO_TIME)
def test_a_file_may_hold_anything(tmp_path: Path, odd: Any) -> None:
    path = tmp_path / "records.jsonl"
    described = dict.fromkeys((each for each in PLAIN.public() if each != "title"), odd)
    entries: list[Entry] = [
        {"kind": "lanes", "request": odd, "state": odd, "at": odd},
        {"kind": "lanes", "request": [odd], "state": [odd], "at": [odd]},
        {"kind": "span", "trace": odd, "span": odd, "start": odd, "end": odd, "attributes": odd},
        {"kind": "wait", "since": odd, "until": odd},
        {"kind": "wait"},
        {"kind": "opening", "request": odd, "at": [1.0]},
        {"kind": "pause", "request": "r", "at": 2.0, "pause_seconds": odd},
        {"kind": "gap", "at": 5.0},
    ]
    lines = [{"kind": "recording", "title": "odd", **described}, *entries]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    ((recording, bodies),) = read_lines(path)
    assert (recording.title, recording.entries, recording.live) == ("odd", len(entries), False)
    for form in ("jsonl", "perfetto"):
        assert write(form, [(recording, bodies)], tmp_path / "out").entries == len(entries)
    assert {"kind": "gap", "at": 5.0} in cut(map(json.loads, bodies), 4.0, 6.0)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_who_may_read_an_export(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write("json", [(PLAIN, [])], tmp_path / "plain.json")
        write("json", [(SAID, [])], tmp_path / "said.json")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / f"{n}.json").stat().st_mode) for n in ("plain", "said")]
    assert modes == [0o666 & ~umask, 0o600]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "trace.json", tmp_path / "far" / "real.json"
    link.symlink_to(target)
    for recording in (PLAIN, SAID):
        write("json", [(recording, [])], link)
        assert link.is_symlink()
        assert json.loads(target.read_text())["recordings"][0]["title"] == recording.title
    assert list((tmp_path / "far").iterdir()) == [target]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write("jsonl", [(PLAIN, [{"kind": "gap"}])], pipe)
    reader.join(60)
    assert pipe.is_fifo()
    assert read and read[0].endswith('{"kind":"gap"}\n')
