"""Recordings as files, and read back from them."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import files
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files import BuiltPage, packed, read_lines, write, write_html
from caesura.runtime.recording.window import cut, times_of
from caesura.tools.artifacts import ArtifactStore

RECORDING = Recording(7, "<i>one</i>", "simulate", 0.0, 9.0, about={"policy": "caesura"})
ENTRIES: list[Entry] = [{"kind": "pause", "request": "</script><script>alert(1)", "at": 1.0}]


def embedded(html: str) -> Any:
    found = re.search(r'id="caesura-data">([A-Za-z0-9+/=]*)</script>', html)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_a_page_holds_everything_and_asks_nobody(tmp_path: Path) -> None:
    out = tmp_path / "trace.html"
    done = write_html([(RECORDING, ENTRIES), (Recording(8, "two", "serve", 1.0), [])], out)
    html = out.read_text()
    assert done.entries == 1
    one, two = embedded(html)["recordings"]
    assert one == {**RECORDING.public(), "data": ENTRIES}
    assert (two["title"], two["data"]) == ("two", [])
    assert "alert(1)" not in html
    assert not re.search(r"<(?:script|link)\b[^>]*\b(?:src|href)=(?!\"data:)", html)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none';")
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert html.index("caesura-data") < html.index('<script type="module">')


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_html([(RECORDING, ENTRIES)], tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_script_cannot_end_its_own_tag() -> None:
    page = BuiltPage("<html><head></head><body></body></html>", 'x("</script><b>")', "p{}")
    html = "".join(page.standalone(["{}"]))
    assert r'x("\x3c/script><b>")</script>' in html
    with pytest.raises(UsageError, match="npm run build"):
        list(BuiltPage("", "", "").standalone([]))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, 1_000_000])
def test_packing_in_pieces(size: int) -> None:
    text = "".join(str(n * n) for n in range(size))[: 2 * size]
    pieces = [text[start : start + 1777] for start in range(0, len(text), 1777)]
    assert gzip.decompress(base64.b64decode("".join(packed(pieces)))).decode() == text


def test_lines_are_read_back(tmp_path: Path) -> None:
    out = tmp_path / "trace.jsonl"
    write("jsonl", [(RECORDING, ENTRIES), (Recording("b", "two", "serve", 1.0), [])], out)
    (one, bodies), (two, none) = read_lines(out)
    assert (one.id, one.title, one.about, one.entries) == (7, "<i>one</i>", RECORDING.about, 1)
    assert [json.loads(body) for body in bodies] == ENTRIES
    assert (two.id, none) == ("b", [])


def test_records_of_a_server_are_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    lines = [
        {"kind": "steps", "at": [10.0, 11.0], "engine": 0},
        {"kind": "pause", "request": "r", "at": 9.0, "pause_seconds": 3.0, "queue_seconds": 0.5},
    ]
    # The server was killed while it wrote the last line.
    file.write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "pau')
    ((recording, bodies),) = read_lines(file)
    assert (recording.id, recording.title, recording.source) == ("records", file.name, "records")
    assert (recording.started, recording.ended, recording.live) == (9.0, 12.5, False)
    assert [json.loads(body) for body in bodies] == lines


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "holds no records"), ("[1]\n", "line 1"), ('{"kind": "x"}\nnonsense\n{}\n', "line 2")],
)
def test_files_that_hold_something_else(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(UsageError, match=told):
        read_lines(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_lines(tmp_path)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def entries() -> Any:
        yield {"kind": "x"}
        raise UsageError("the store is gone")

    with pytest.raises(UsageError, match="the store is gone"):
        write("json", [(RECORDING, entries())], tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="cannot be written"):
        write("json", [], tmp_path / "no" / "out.json")
    with pytest.raises(UsageError, match="one by one"):
        write("perfetto", [], tmp_path / "out.json")


def test_files_of_tools_are_put_in_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ARTIFACT_BYTES", 150)
    store = ArtifactStore(tmp_path / "artifacts")
    small, large = store.put(b"s" * 100, "png"), store.put(b"l" * 200, "wav")
    text, again = store.put(b"text", "txt"), store.put(b"a" * 60, "png")
    names = [small.name, large.name, text.name, again.name, "../../etc/passwd", small.name]
    span = {"kind": "span", "attributes": {"caesura.tool.artifacts": names}}
    said = Recording(1, "said", "serve", 0.0, content=True)
    unsaid = Recording(1, "unsaid", "serve", 0.0)
    done = write_html([(said, [span])], tmp_path / "said.html", [store])
    assert list(embedded((tmp_path / "said.html").read_text())["artifacts"]) == [small.name]
    assert (tmp_path / "said.html").stat().st_mode & 0o777 == 0o600
    assert (done.artifacts, done.left_out) == (1, 4)
    done = write_html([(unsaid, [span])], tmp_path / "unsaid.html", [store])
    assert embedded((tmp_path / "unsaid.html").read_text())["artifacts"] == {}
    assert (tmp_path / "unsaid.html").stat().st_mode & 0o777 == 0o644
    assert (done.artifacts, done.left_out) == (0, 0)


# -- a span of time --------------------------------------------------------------------------------


def lanes(*rows: tuple[str, str, float]) -> Entry:
    request, state, at = (list(each) for each in zip(*rows, strict=True))
    counts = [0] * len(rows)
    return {
        "kind": "lanes",
        "request": request,
        "state": state,
        "at": at,
        "blocks": counts,
        "host": counts,
        "tokens": counts,
    }


def rows_of(entries: list[Entry]) -> list[tuple[str, str, float]]:
    return [
        row
        for each in entries
        if each["kind"] == "lanes"
        for row in zip(each["request"], each["state"], each["at"], strict=True)
    ]


def test_what_was_going_on_at_the_beginning_is_kept() -> None:
    entries = [
        lanes(
            ("a", "decode", 1.0), ("b", "decode", 1.0), ("a", "paused", 2.0), ("c", "decode", 3.0)
        ),
        lanes(("b", "ended", 4.0), ("a", "decode", 6.0), ("d", "waiting", 9.0)),
    ]
    found = rows_of(list(cut(entries, 5.0, 8.0)))
    assert found == [("a", "paused", 2.0), ("a", "decode", 6.0), ("c", "decode", 3.0)]


def test_spans_and_pauses_that_overlap_are_kept() -> None:
    def span(name: str, start: float, end: float | None) -> Entry:
        return {"kind": "span", "trace": "t", "span": name, "start": start, "end": end}

    def opening(request: str, at: float) -> Entry:
        return {"kind": "opening", "request": request, "at": at}

    def pause(request: str, at: float, seconds: float) -> Entry:
        return {"kind": "pause", "request": request, "at": at, "pause_seconds": seconds}

    entries = [
        span("over", 1.0, None),
        span("open", 1.0, None),
        span("later", 9.0, 9.5),
        span("over", 1.0, 4.0),
        opening("over", 1.0),
        opening("long", 1.0),
        opening("open", 2.0),
        pause("over", 1.0, 2.0),
        pause("long", 1.0, 5.0),
        opening("in", 6.0),
        {"kind": "wait", "since": 3.0, "until": 5.5},
        {"kind": "wait", "since": 3.0, "until": 4.5},
        {"kind": "session", "at": 7.0},
        {"kind": "session", "at": 8.5},
        {"kind": "of later"},
    ]
    found = list(cut(entries, 5.0, 8.0))
    assert found == [
        opening("long", 1.0),
        pause("long", 1.0, 5.0),
        opening("in", 6.0),
        {"kind": "wait", "since": 3.0, "until": 5.5},
        {"kind": "session", "at": 7.0},
        {"kind": "of later"},
        span("open", 1.0, None),
        opening("open", 2.0),
    ]
    assert list(cut(entries, 0.0, 100.0)) == entries
    assert times_of({"kind": "span", "start": 3.0, "end": None}) == (3.0, 3.0)


def test_a_window_of_a_planned_run_keeps_what_its_later_part_refers_to() -> None:
    kinds = ("plan", "stage", "replica", "progress")
    entries: list[Entry] = [{"kind": kind, "at": at} for kind in kinds for at in (1.0, 6.0, 9.0)]
    found = list(cut(entries, 5.0, 8.0))
    assert found == [entry for entry in entries if entry["at"] < 8.0]
