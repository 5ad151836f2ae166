"""A recording as a Perfetto trace: what it tells, and that it keeps the format's rules."""

import json
from collections import defaultdict
from typing import Any

import pytest

from caesura.runtime.recording.perfetto import EVENTS_PER_PIECE, perfetto

from .traces import crowded

PRICES = {"preserve": 30.0, "discard": 12.0, "swap": None}
LANES = {
    "kind": "lanes",
    "request": ["r1", "r2", "r1", "r1", "r1", "r1", "r2"],
    "state": ["waiting", "waiting", "prefill", "decode", "paused", "dropped", "ended"],
    "at": [10.0, 10.5, 11.0, 12.0, 13.0, 14.0, 15.0],
    "blocks": [0, 0, 3, 4, 5, 0, 0],
}
OPENING = {
    "kind": "opening",
    "request": "r1",
    "session": "r1",
    "tool": "ask",
    "person": True,
    "at": 13.0,
    "predicted_seconds": 3.0,
    "handling": "caesura",
    "prices": PRICES,
    "inputs": {"resident": 5, "swap_pays": False},
}
PAUSE = {
    "kind": "pause",
    "request": "r1",
    "tool": "ask",
    "at": 13.0,
    "prices": PRICES,
    "decisions": [[1.0, "discard", 5, "running"]],
    "outcome": "resumed",
    "handling": "discard",
    "pause_seconds": 2.5,
    "queue_seconds": 0.25,
    "cost": 17.0,
    "regret": 5.0,
}


def steps(at: list[float], seconds: list[float], **columns: list[float]) -> dict[str, Any]:
    return {"kind": "steps", "engine": 0, "at": at, "seconds": seconds, **columns}


def span(name: str, start: float, end: float | None, operation: str, **more: Any) -> dict[str, Any]:
    given = {"parent": None, "attributes": {}} | more
    given["attributes"] = {"gen_ai.operation.name": operation} | given["attributes"]
    return {"kind": "span", "trace": "t", "name": name, "start": start, "end": end, **given}


def trace_of(*entries: dict[str, Any], **recording: Any) -> list[dict[str, Any]]:
    """The events of a recording, after all rules of the format have been checked."""
    pieces = list(perfetto({"id": 1, "title": "made by hand"} | recording, entries))
    read = json.loads("".join(pieces), parse_constant=pytest.fail)
    follows_the_rules(read["traceEvents"])
    return read["traceEvents"]


def follows_the_rules(events: list[dict[str, Any]]) -> None:
    """What readers of the format rely on; they drop or misplace what breaks it."""
    names = {"thread": {}, "process": {}}
    for event in events:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            of = event["name"].removesuffix("_name")
            key = event["tid"] if of == "thread" else event["pid"]
            assert key not in names[of], "named twice"
            names[of][key] = event["args"]["name"]
    slices = defaultdict(list)
    processes: dict[int, int] = {}
    for event in events:
        assert event["ph"] in "XiCMsf"
        assert event["pid"] in names["process"] or event.get("s") == "g"
        if event["ph"] != "M":
            assert isinstance(event["ts"], int) and event["ts"] >= 0
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] >= 0
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "Xisf" and event.get("s") != "g":
            assert event["tid"] in names["thread"]
            assert processes.setdefault(event["tid"], event["pid"]) == event["pid"]
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    arrows_bind(events, slices)
    for track in slices.values():
        nested_or_apart(sorted(track, key=lambda one: (one[0], -one[1])))


def arrows_bind(events: list[dict[str, Any]], slices: dict[int, list[tuple[int, int]]]) -> None:
    """An arrow is one beginning and one end of an id, forward in time, each within a slice."""
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(begins) + len(ends) == sum(event["ph"] in "sf" for event in events)
    assert begins.keys() == ends.keys()
    for number, end in ends.items():
        begin = begins[number]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert begin["ts"] <= end["ts"], "it points into the past"
        assert end["bp"] == "e", "it would bind to the slice after the one that it points to"
        for event in (begin, end):
            open_now = [one for one in slices[event["tid"]] if one[0] <= event["ts"] < one[1]]
            assert open_now, "it binds to nothing"


def nested_or_apart(slices: list[tuple[int, int]]) -> None:
    open_ends: list[int] = []
    for begin, end in slices:
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], "slices of one thread overlap"
        open_ends.append(end)


def named(events: list[dict[str, Any]], tid: int) -> str:
    return next(e["args"]["name"] for e in events if e["name"] == "thread_name" and e["tid"] == tid)


def slices_of(events: list[dict[str, Any]], thread: str) -> list[tuple[str, float, float]]:
    found = [e for e in events if e["ph"] == "X" and named(events, e["tid"]) == thread]
    found.sort(key=lambda event: event["ts"])
    return [(e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in found]


def test_a_request_is_a_thread_of_its_states() -> None:
    events = trace_of(OPENING, LANES, PAUSE)
    assert slices_of(events, "request r1") == [
        ("waiting", 10, 11),
        ("prefill", 11, 12),
        ("decode", 12, 13),
        ("paused", 13, 14),
        ("dropped", 14, 15.75),  # still open: drawn up to the last time that was told
    ]
    assert slices_of(events, "request r2") == [("waiting", 10.5, 15)]
    by_name = {event["name"]: event for event in events if event["ph"] == "X"}
    assert by_name["paused"]["args"] == {"request": "r1", "blocks": 5, "waits_for": "person"}
    assert "waits_for" not in by_name["decode"]["args"]
    assert by_name["dropped"]["args"]["open"] is True
    assert len({by_name[state]["cname"] for state in ("prefill", "decode", "paused")}) == 3


def test_decisions_are_instants_with_prices_and_regret() -> None:
    events = trace_of(LANES, OPENING, PAUSE)
    instants = [event for event in events if event["ph"] == "i"]
    assert [(event["name"], event["ts"]) for event in instants] == [
        ("pause: ask", 13_000_000),
        ("discard 5 blocks", 14_000_000),
        ("resumed: discard", 15_750_000),
    ]
    opened, dropped, back = (event["args"] for event in instants)
    assert opened["prices"] == PRICES and opened["inputs"]["resident"] == 5
    assert dropped == {"blocks": 5, "why": "running"}
    assert (back["regret"], back["cost"]) == (5.0, 17.0)


def test_older_files_have_neither_openings_nor_reasons() -> None:
    events = trace_of({**PAUSE, "decisions": [[1.0, "swap", 2]], "pause_seconds": None})
    instants = [(event["name"], event["args"]) for event in events if event["ph"] == "i"]
    assert [name for name, _ in instants] == ["pause: ask", "swap 2 blocks", "resumed: discard"]
    assert instants[0][1]["prices"] == PRICES
    assert "cost" not in instants[0][1]
    assert instants[1][1]["why"] == "unknown"


def test_steps_are_slices_and_counters_that_fall_to_zero_between_them() -> None:
    events = trace_of(
        steps(
            [1.0, 1.1, 3.0],
            [0.2, 0.2, 0.5],  # the second was scheduled while the first was being computed
            decode_tokens=[4, 4, 0],
            prefill_tokens=[0, 8, 16],
            running=[4, 5, 1],
            free_blocks=[10, 9, 9],
            cached_blocks=[6, 6, 9],
        )
    )
    assert slices_of(events, "steps") == [
        ("decode", 1.0, 1.2),
        ("decode + prefill", 1.2, 1.4),
        ("prefill", 3.0, 3.5),
    ]
    counted = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counted[event["name"]].append((event["ts"] / 1e6, event["args"]))
    assert counted["tokens"] == [
        (1.0, {"decode": 4, "prefill": 0}),
        (1.2, {"decode": 4, "prefill": 8}),
        (1.4, {"decode": 0, "prefill": 0}),
        (3.0, {"decode": 0, "prefill": 16}),
        (3.5, {"decode": 0, "prefill": 0}),
    ]
    assert counted["blocks"] == [
        (1.0, {"free": 4, "cached": 6}),
        (1.2, {"free": 3, "cached": 6}),
        (3.0, {"free": 0, "cached": 9}),
    ]
    assert [args["running"] for _, args in counted["requests"]] == [4, 5, 1]


def test_every_rank_is_an_engine_of_its_own() -> None:
    one = steps([1.0], [0.2], running=[1])
    events = trace_of(one, {**one, "engine": 1})
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == ["Engine 0", "Engine 1"]


def test_runs_hold_their_turns_and_calls_lie_side_by_side() -> None:
    events = trace_of(
        span("invoke_agent a", 1.0, None, "invoke_agent", span="run"),
        span("execute_tool add", 1.5, None, "execute_tool", span="c1", parent="run"),
        span("chat m", 1.1, 2.0, "chat", span="x", parent="run"),
        span(
            "execute_tool add",
            1.5,
            3.0,
            "execute_tool",
            span="c1",
            parent="run",
            attributes={"gen_ai.tool.name": "add"},
            status="error",
            message="no",
        ),
        span(
            "execute_tool add",
            1.6,
            2.9,
            "execute_tool",
            span="c2",
            parent="run",
            attributes={"gen_ai.tool.name": "add"},
        ),
        span("chat m", 3.0, 4.0, "chat", span="y", parent="run"),
        span("execute_tool slow", 3.5, None, "execute_tool", span="c3", parent="run"),
        span("invoke_agent a", 1.0, 4.5, "invoke_agent", span="run"),
    )
    assert slices_of(events, "runs") == [
        ("invoke_agent a", 1.0, 4.5),
        ("chat m", 1.1, 2.0),
        ("chat m", 3.0, 4.0),
    ]
    assert slices_of(events, "add") == [("execute_tool add", 1.5, 3.0)]
    assert slices_of(events, "add (2)") == [("execute_tool add", 1.6, 2.9)]
    assert slices_of(events, "execute_tool slow") == [("execute_tool slow", 3.5, 4.5)]
    failed = next(e for e in events if e["ph"] == "X" and e["ts"] == 1_500_000)
    assert (failed["args"]["status"], failed["args"]["message"]) == ("error", "no")


def test_runs_lie_side_by_side_and_take_a_thread_only_while_they_run() -> None:
    """A thread for each run beside that of its request would double the rows of a trace."""

    def run(name: str, start: float, end: float | None) -> dict[str, Any]:
        return span(f"invoke_agent {name}", start, end, "invoke_agent", span=name)

    def turn(name: str, start: float, end: float) -> dict[str, Any]:
        return span("chat m", start, end, "chat", span=f"{name}{start}", parent=name)

    events = trace_of(
        *(run("a", 1, None), run("b", 1.5, None), turn("a", 1.1, 1.4), turn("b", 1.6, 2)),
        *(run("a", 1, 2), run("c", 2.5, None), turn("c", 2.6, 2.8), run("c", 2.5, 3)),
        *(turn("d", 3.1, 3.2), run("d", 3, 3.5)),  # an older file, without its beginning
        run("b", 1.5, 4),
        turn("lost", 5, 6),
    )
    assert [name for name, _, _ in slices_of(events, "runs")] == [
        *("invoke_agent a", "chat m", "invoke_agent c", "chat m", "invoke_agent d", "chat m"),
        "chat m",
    ]
    assert [name for name, _, _ in slices_of(events, "runs (2)")] == ["invoke_agent b", "chat m"]


def test_arrows_lead_from_turns_to_requests_and_calls_and_back() -> None:
    about = {"caesura.request.id": "r1"}
    events = trace_of(
        {**LANES, "request": ["r1-0" if one == "r1" else one for one in LANES["request"]]},
        span("invoke_agent a", 9.9, None, "invoke_agent", span="run"),
        span("chat m", 9.95, 13.0, "chat", span="x", parent="run", attributes=about),
        span("execute_tool ask", 12.5, 14.9, "execute_tool", span="c", parent="run"),
        span("chat m", 14.95, 15.0, "chat", span="y", parent="run", attributes=about),
        span("invoke_agent a", 9.9, 15.5, "invoke_agent", span="run"),
    )

    def at(event: dict[str, Any]) -> tuple[str, float]:
        return named(events, event["tid"]), event["ts"] / 1e6

    begins = {event["id"]: at(event) for event in events if event["ph"] == "s"}
    arrows = {
        (event["name"], begins[event["id"]], at(event)) for event in events if event["ph"] == "f"
    }
    assert arrows == {
        ("turn", ("runs", 10), ("request r1-0", 10)),
        ("turn", ("runs", 14.95), ("request r1-0", 14.95)),  # in the state that goes on
        ("call", ("runs", 12.5), ("execute_tool ask", 12.5)),
        ("result", ("execute_tool ask", 14.899999), ("runs", 14.95)),
    }


def test_blocks_are_counted_to_the_end_of_an_engine_that_rests() -> None:
    busy = steps(
        [1.0], [0.2], running_blocks=[6], paused_blocks=[0], free_blocks=[4], cached_blocks=[1]
    )
    rest = {"kind": "rest", "at": 1.2, "running_blocks": 0, "paused_blocks": 1, "free_blocks": 9}
    events = trace_of(busy, rest)
    counted = [(e["ts"] / 1e6, e["args"]) for e in events if e["name"] == "blocks"]
    assert counted == [
        (1.0, {"running": 6, "paused": 0, "cached": 1, "free": 3}),
        (1.2, {"running": 0, "paused": 1, "cached": 6, "free": 3}),
    ]


def test_the_death_of_an_engine_is_marked() -> None:
    died = {"kind": "restart", "at": 2.0, "why": "killed", "attempts": 1, "seconds": 4.5}
    (mark,) = [e for e in trace_of(died) if e["name"] == "the engine died"]
    assert (mark["ts"], mark["args"]["why"]) == (2e6, "killed")


def test_what_the_engine_did_ends_with_it() -> None:
    states = ["decode", "waiting", "decode", "ended"]
    lanes = {"kind": "lanes", "request": ["a", "b", "b", "b"], "state": states}
    lanes |= {"at": [1.0, 9.0, 9.5, 9.8], "blocks": [1] * 4, "host": [0] * 4, "tokens": [5] * 4}
    died = {"kind": "restart", "at": 2.0, "why": "killed"}
    down, back = died | {"state": "down"}, died | {"state": "restarted", "seconds": 5.0}
    events = trace_of(lanes, down, back, steps([9.5], [0.1]))
    slices = {e["args"]["request"]: e for e in events if e["name"] == "decode" and "args" in e}
    assert slices["a"]["dur"] == 1e6 and slices["a"]["args"]["lost_with_the_engine"]
    assert slices["b"]["ts"] == 9.5e6 and "lost_with_the_engine" not in slices["b"]["args"]
    marks = {e["name"]: e["ts"] for e in events if e["ph"] == "i"}
    assert marks == {"the engine died": 2e6, "the engine was restarted": 7e6}


def test_blocks_at_rest_without_a_prefix_cache() -> None:
    busy = steps(
        [1.0], [0.2], running_blocks=[6], paused_blocks=[0], free_blocks=[4], cached_blocks=[0]
    )
    rest = {"kind": "rest", "at": 1.2, "running_blocks": 0, "paused_blocks": 0, "free_blocks": 10}
    (_, last) = (e["args"] for e in trace_of(busy, rest) if e["name"] == "blocks")
    assert last == {"running": 0, "paused": 0, "cached": 0, "free": 10}


def test_waits_and_gaps_are_told() -> None:
    wait = {"kind": "wait", "request": "r1", "since": 1.0, "until": 2.0, "steps": 9}
    events = trace_of(
        {**wait, "lacked": {"blocks": 7, "admission": 2}, "overtaken": 3},
        {"kind": "gap", "at": 5.0, "lost": 12, "why": "the disk is full"},
    )
    (waited, gap) = (event for event in events if event["ph"] == "i")
    assert waited["name"] == "waited, lacking blocks, admission"
    assert waited["args"]["overtaken"] == 3
    assert (gap["name"], gap["s"], gap["args"]["why"]) == (
        "12 entries lost",
        "g",
        "the disk is full",
    )


def test_what_is_not_known_is_left_out_and_what_json_cannot_say_is_null() -> None:
    strange = {"kind": "from the future", "at": "?"}
    broken = [{"kind": kind} for kind in ("lanes", "opening", "pause", "wait", "steps", "span")]
    broken += [{**PAUSE, "at": None}, {**LANES, "at": 3}]
    events = trace_of(strange, {}, *broken, {**OPENING, "predicted_seconds": float("inf")})
    (opened,) = (event for event in events if event["ph"] == "i")
    assert opened["args"]["predicted_seconds"] is None


def test_an_empty_recording_is_a_trace_too() -> None:
    assert trace_of() == []


def test_it_says_where_it_is_from() -> None:
    about = {"policy": "caesura", "rate": 2.5}
    text = "".join(perfetto({"id": 7, "title": 'a "b"', "about": about}, []))
    facts = json.loads(text)["otherData"]
    assert facts == {"id": 7, "title": 'a "b"', "policy": "caesura", "rate": 2.5}


@pytest.mark.parametrize("count", [1, EVENTS_PER_PIECE - 3, EVENTS_PER_PIECE, 3 * EVENTS_PER_PIECE])
def test_pieces_of_any_number_make_one_text(count: int) -> None:
    gaps = [{"kind": "gap", "at": float(at), "lost": 1, "why": ""} for at in range(count)]
    assert len(trace_of(*gaps)) == count


@pytest.mark.slow
def test_a_simulated_run_keeps_the_rules_and_its_sums() -> None:
    entries = crowded()
    events = trace_of(*entries)
    tokens = sum(
        sum(entry[f"{purpose}_tokens"])
        for entry in entries
        if entry["kind"] == "steps"
        for purpose in ("decode", "prefill", "recompute")
    )
    steps_seen = [e["args"] for e in events if e["ph"] == "X" and e["cat"] == "step"]
    assert tokens > 0
    assert tokens == sum(
        args[f"{purpose}_tokens"]
        for args in steps_seen
        for purpose in ("decode", "prefill", "recompute")
    )
    pauses = [entry for entry in entries if entry["kind"] == "pause"]
    told = [e["args"]["regret"] for e in events if e["ph"] == "i" and "regret" in e["args"]]
    assert told == [pause["regret"] for pause in pauses] and pauses
