"""Sessions of the simulator that are rebuilt from an engine's records."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from caesura.simulator.session import Segment, Session
from caesura.simulator.workload.names import make_workload
from caesura.simulator.workload.records import PLAIN, read_sessions


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


EPOCH = 1_700_000_000.0


def records_of(session: Session) -> list[dict[str, Any]]:
    """Return the records that an engine would write of a session."""
    rows: list[dict[str, Any]] = []
    at, context = EPOCH + session.arrival, 0
    name = f"chatcmpl-{session.key}"
    common = {"request": name, "session": name, "arrival": at, "engine": 0}
    for segment in session.segments[:-1]:
        context += segment.given_tokens + segment.decode_tokens
        at += 1 + segment.tool_seconds
        rows.append(
            {
                "kind": "pause",
                **common,
                "tool": segment.tool,
                "at": at - segment.tool_seconds,
                "context_tokens": context,
                "given_tokens": segment.given_tokens,
                "decoded_tokens": segment.decode_tokens,
                "outcome": "resumed",
                "pause_seconds": segment.tool_seconds,
            }
        )
    last = session.segments[-1]
    rows.append(
        {
            "kind": "session",
            **common,
            "calls": len(rows),
            "given_tokens": last.given_tokens,
            "decoded_tokens": last.decode_tokens,
            "most_tokens": last.most_tokens or None,
            "at": at + 1,
            "outcome": "stop",
        }
    )
    return rows


def test_records_give_the_sessions_back(tmp_path: Path) -> None:
    sessions = [
        *make_workload("mix", 0.5, 60.0, 3).sessions,
        *make_workload("ssjf", 0.2, 60.0, 4).sessions,
    ]
    rows = [row for session in sessions for row in records_of(session)]
    random.Random(1).shuffle(rows)  # pauses end in any order
    rows.insert(3, {"kind": "steps", "at": [1.0], "seconds": [0.1]})
    found = read_sessions(written(tmp_path / "records.jsonl", rows))
    assert len(found) == len(sessions)
    for one, other in zip(found, sorted(sessions, key=lambda each: each.arrival), strict=True):
        assert one.segments == other.segments
        assert one.arrival == pytest.approx(EPOCH + other.arrival)
        assert one.kind == (other.kind if len(other.segments) > 1 else PLAIN)


def test_a_recorded_workload_keeps_or_stretches_its_arrivals(tmp_path: Path) -> None:
    sessions = make_workload("mix", 0.5, 100.0, 3).sessions
    rows = [row for session in sessions for row in records_of(session)]
    path = written(tmp_path / "records.jsonl", rows)
    first = sessions[0].arrival
    as_it_was = make_workload("record", 0, 1000.0, 1, path).sessions
    assert [each.segments for each in as_it_was] == [each.segments for each in sessions]
    for one, other in zip(as_it_was, sessions, strict=True):
        assert one.arrival == pytest.approx(other.arrival - first, abs=1e-5)
    faster = make_workload("record", 2.0, 1000.0, 1, path).sessions
    assert faster[-1].arrival == pytest.approx((len(sessions) - 1) / 2.0)
    assert len(make_workload("record", 0, 50.0, 1, path).sessions) < len(sessions)
    again = make_workload("record:arrivals=poisson", 5.0, 100.0, 1, path).sessions
    assert len(again) > len(sessions)
    assert again[len(sessions)].segments == again[0].segments
    assert len({each.key for each in again}) == len(again)


PAUSED = Session("a", "qa", 5.0, (Segment(100, 10, "qa", 2.0), Segment(30, 5)))


def test_a_client_that_runs_its_own_tools_is_one_session(tmp_path: Path) -> None:
    rows = records_of(PAUSED)
    rows[0] |= {"outcome": "followed"}
    rows[1] |= {"request": "chatcmpl-b"}
    path = tmp_path / "r.jsonl"
    assert [each.segments for each in read_sessions(written(path, rows))] == [PAUSED.segments]
    for row in rows:  # as long as nobody names the session, every request is one
        del row["session"]
    rows[1] |= {"calls": 0}
    found = read_sessions(written(path, rows))
    assert [each.segments for each in found] == [(Segment(100, 10),), (Segment(30, 5),)]


def test_what_a_client_would_have_allowed(tmp_path: Path) -> None:
    plain = Session("p", PLAIN, 1.0, (Segment(10, 4, most_tokens=64),))
    found = read_sessions(written(tmp_path / "r.jsonl", records_of(plain) + records_of(PAUSED)))
    assert [each.segments for each in found] == [plain.segments, PAUSED.segments]


def test_engines_do_not_mix(tmp_path: Path) -> None:
    rows = records_of(PAUSED) + [row | {"engine": 1} for row in records_of(PAUSED)]
    found = read_sessions(written(tmp_path / "r.jsonl", rows))
    assert [each.segments for each in found] == [PAUSED.segments] * 2


def test_what_is_missing_of_a_session(tmp_path: Path) -> None:
    long = Session(
        "c", "ve", 9.0, (Segment(50, 5, "ve", 1.0), Segment(6, 7, "ve", 1.0), Segment(8, 9))
    )
    path = tmp_path / "r.jsonl"
    whole = records_of(PAUSED)

    def others(rows: list[dict[str, Any]]) -> list[tuple[Segment, ...]]:
        return [each.segments for each in read_sessions(written(path, whole + rows))[1:]]

    rows = records_of(long)
    assert others(rows) == [long.segments]
    assert others(rows[:2]) == [(Segment(50, 5, "ve", 1.0), Segment(6, 7))]  # still runs
    assert others(rows[1:]) == []  # its beginning is lost
    assert others([*rows[:2], rows[2] | {"decoded_tokens": 0}]) == others(rows[:2])  # aborted
    gone = [rows[0], rows[1] | {"outcome": "ended"}, rows[2]]
    assert others(gone) == others(rows[:2])  # nobody came back
    assert others([rows[0] | {"tool": ""}, *rows[1:]])[0][0].tool == "tool"
    assert others([rows[0] | {"given_tokens": 0}, *rows[1:]])[0][0].given_tokens == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": None}, ":2: this is not a record: it has no kind"),
        ({"session": None}, ":2: a record of kind 'pause' has session=None: it must be a text"),
        ({"arrival": None}, ":2: arrival must be a number >= 0, got None"),
        ({"given_tokens": None}, ":2: a record of kind 'pause' has given_tokens=None"),
        ({"decoded_tokens": 0}, ":2: decoded_tokens must be a number >= 1, got 0"),
        ({"decoded_tokens": 1.5}, ":2: a record of kind 'pause' has decoded_tokens=1.5"),
        ({"outcome": 3}, ":2: a record of kind 'pause' has outcome=3: it must be a text"),
        ({"pause_seconds": -1}, ":2: pause_seconds must be a number >= 0, got -1"),
    ],
)
def test_a_bad_record_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    rows = [{"kind": "steps"}, records_of(PAUSED)[0] | change]
    path = written(tmp_path / "r.jsonl", rows)
    with pytest.raises(ValueError, match="workload 'record': ") as caught:
        make_workload("record", 0, 10.0, 1, path)
    assert f"{path}{says}" in str(caught.value)


def test_a_record_file_without_sessions(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [{"kind": "steps"}])
    with pytest.raises(ValueError, match=r"r.jsonl: no whole session is recorded"):
        make_workload("record", 0, 10.0, 1, path)
    whole = written(path, records_of(PAUSED))
    with pytest.raises(ValueError, match="no session begins within 20 tokens"):
        make_workload("record:context=20", 0, 10.0, 1, whole)
