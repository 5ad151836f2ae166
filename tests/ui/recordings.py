"""Recordings made by hand: every number in them is told apart from every other one.

A run of ten seconds on 64 blocks. `a` searches, is swapped out and comes back; `b` asks a person,
is dropped and recomputed; `c` still waits for its calculator; `d` waits for blocks, and its tool
times out.
"""

import json
from collections.abc import Mapping
from typing import Any

from caesura.runtime.recording.entries import Entry, Recording

BEGAN = 1_700_000_000.0
A, B, C, D = "chat-a-1f0e", "chat-b-2d1c", "chat-c-3b2a", "chat-d-4f5e"

INPUTS = {
    "elapsed": 0.0,
    "remaining": 3.2,
    "resident": 13,
    "free_to_release": 0,
    "uncopied": 12,
    "hosted": 0,
    "missing": 0,
    "block_size": 16,
    "total_blocks": 64,
    "free_blocks": 17,
    "host_free": 900,
    "running_tokens": 3,
    "running_context": 611,
    "link_blocks": 4,
    "swap_pays": True,
    "step_seconds": 0.021,
}
SEARCH = {
    "request": A,
    "session": A,
    "tool": "search",
    "at": BEGAN + 2,
    "context_tokens": 199,
    "blocks": 13,
    "predicted_seconds": 3.2,
    "prices": {"preserve": 41.6, "discard": 23.7, "swap": 6.13},
    "handling": "caesura",
}
ASKED = {
    "request": B,
    "session": B,
    "tool": "ask_user",
    "at": BEGAN + 4,
    "context_tokens": 310,
    "blocks": 20,
    "predicted_seconds": 45.5,
    "prices": {"preserve": 910.0, "discard": 37.4, "swap": None},
    "handling": "caesura",
}
CALCULATED = {
    "request": C,
    "session": C,
    "tool": "calculator",
    "at": BEGAN + 9.5,
    "context_tokens": 96,
    "blocks": 6,
    "predicted_seconds": 0.83,
    "prices": {"preserve": 4.98, "discard": 9.21, "swap": 5.55},
    "handling": "caesura",
}


def opening(known: Entry, person: bool = False, **inputs: Any) -> Entry:
    return {
        "kind": "opening",
        **known,
        "person": person,
        "deadline_seconds": 600.0,
        "inputs": INPUTS | inputs,
    }


def pause(known: Entry, **became: Any) -> Entry:
    segment = {"arrival": BEGAN, "given_tokens": 150, "decoded_tokens": 49}
    return {"kind": "pause", **known, **segment, **became}


SEARCH_PAUSE = pause(
    SEARCH,
    decisions=[[1.5, "swap", 8, "decided"], [1.75, "swap", 4, "running"]],
    outcome="resumed",
    handling="swap",
    pause_seconds=4.0,
    queue_seconds=0.4,
    loaded_tokens=192,
    recomputed_tokens=7,
    cost=19.4,
    queue_cost=4.5,
    work_cost=1.13,
    hindsight={"preserve": 52.0, "discard": 23.7, "swap": 6.13},
    regret=13.27,
    wanted_seconds=3.25,
    wanted_requests=1,
    wanted_by=[[D, 3.0]],
)
ASKED_PAUSE = pause(
    ASKED,
    decisions=[[1.0, "discard", 20, "admit"]],
    outcome="resumed",
    handling="discard",
    pause_seconds=4.0,
    queue_seconds=0.5,
    loaded_tokens=0,
    recomputed_tokens=310,
    cost=57.4,
    queue_cost=3.4,
    work_cost=37.4,
    hindsight={"preserve": 80.0, "discard": 37.4, "swap": None},
    regret=20.0,
    wanted_seconds=3.5,
    wanted_requests=7,
    wanted_by=[[D, 3.0], [C, 0.5]],
)
WAIT = {
    "kind": "wait",
    "request": D,
    "since": BEGAN + 3,
    "until": BEGAN + 7,
    "steps": 41,
    "lacked": {"blocks": 37, "slots": 2},
    "needed_blocks": 24,
    "free_blocks": 11,
    "overtaken": 1,
    "after": "fresh",
}
STATES = [  # seconds, request, state, blocks, of them on the host, tokens
    (0.0, A, "waiting", 0, 0, 150),
    (0.2, A, "prefill", 10, 0, 150),
    (0.5, A, "decode", 13, 0, 150),
    (1.0, B, "waiting", 0, 0, 270),
    (1.1, B, "prefill", 17, 0, 270),
    (1.4, B, "decode", 20, 0, 270),
    (2.0, A, "paused", 13, 0, 199),
    (3.0, D, "waiting", 0, 0, 480),
    (3.5, A, "offloaded", 5, 8, 199),
    (3.75, A, "offloaded", 1, 12, 199),
    (4.0, B, "paused", 20, 0, 310),
    (5.0, B, "dropped", 0, 0, 310),
    (6.0, A, "waiting", 0, 12, 240),
    (6.4, A, "loading", 13, 12, 240),
    (6.9, A, "decode", 16, 0, 240),
    (7.0, D, "prefill", 24, 0, 480),
    (8.0, B, "waiting", 0, 0, 330),
    (8.0, D, "decode", 25, 0, 480),
    (8.5, B, "recompute", 21, 0, 330),
    (8.8, C, "waiting", 0, 0, 80),
    (8.9, C, "prefill", 5, 0, 80),
    (9.0, A, "ended", 0, 0, 300),
    (9.0, B, "decode", 22, 0, 330),
    (9.1, C, "decode", 6, 0, 80),
    (9.5, C, "paused", 6, 0, 96),
    (9.5, D, "ended", 0, 0, 520),
    (10.0, B, "ended", 0, 0, 360),
]
RUNNING = {"prefill", "recompute", "decode", "loading"}


def lanes(rows: list[tuple[float, str, str, int, int, int]]) -> Entry:
    at, request, state, blocks, host, tokens = (list(column) for column in zip(*rows, strict=True))
    return {
        "kind": "lanes",
        "request": request,
        "state": state,
        "at": [BEGAN + seconds for seconds in at],
        "blocks": blocks,
        "host": host,
        "tokens": tokens,
    }


def steps() -> Entry:
    """A step each quarter of a second, with what the states above add up to."""
    rows = []
    for index in range(40):
        at = index / 4
        now: dict[str, tuple[str, int, int]] = {}
        for seconds, request, state, blocks, host, _ in STATES:
            if seconds <= at:
                now[request] = (state, blocks, host)
        blocks_of = {
            owner: sum(blocks for state, blocks, _ in now.values() if state in states)
            for owner, states in (("running", RUNNING), ("paused", {"paused", "offloaded"}))
        }
        free = 64 - blocks_of["running"] - blocks_of["paused"]
        count = [state for state, _, _ in now.values()]
        rows.append(
            {
                "at": BEGAN + at,
                "seconds": 0.2,
                "running": sum(state in RUNNING for state in count),
                "paused": sum(state in ("paused", "offloaded", "dropped") for state in count),
                "waiting": count.count("waiting"),
                "decode_tokens": count.count("decode"),
                "prefill_tokens": 100 * count.count("prefill"),
                "recompute_tokens": 110 * count.count("recompute"),
                "budget_blocks": 4,
                "budget_tokens": 101,
                "saved_blocks": 4 if 3.25 < at < 4 else 0,
                "loaded_blocks": 4 if 6.25 < at < 7 else 0,
                "running_blocks": blocks_of["running"],
                "paused_blocks": blocks_of["paused"],
                "free_blocks": free,
                "cached_blocks": min(free, 9),
                "host_blocks": sum(host for _, _, host in now.values()),
            }
        )
    return {"kind": "steps", **{name: [row[name] for row in rows] for name in rows[0]}}


def span(
    trace: str, key: str, name: str, start: float, end: float | None, **attributes: Any
) -> Entry:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    failed = named.get("error.type")
    return {
        "kind": "span",
        "trace": trace * 32,
        "span": f"{trace}{key}".ljust(16, "0"),
        "parent": None if key == "0" else f"{trace}0".ljust(16, "0"),
        "name": name,
        "start": BEGAN + start,
        "end": None if end is None else BEGAN + end,
        "status": "error" if failed else "unset",
        "message": "the tool took longer than 2 s" if failed else "",
        "attributes": {"gen_ai.operation.name": name.split()[0], **named},
        "events": [],
    }


def run(trace: str, request: str, start: float, end: float | None) -> tuple[Entry, Entry]:
    """The two entries of a run; a run under way has only the first."""
    began = span(trace, "0", "invoke_agent helper", start, None, gen_ai__agent__name="helper")
    ended = span(
        trace,
        "0",
        "invoke_agent helper",
        start,
        end,
        gen_ai__agent__name="helper",
        gen_ai__conversation__id=f"conversation-{trace}",
        caesura__turns=2,
        caesura__calls=1,
    )
    return began, ended


def chat(
    trace: str, key: str, request: str, start: float, end: float, tokens: tuple[int, int, int]
) -> Entry:
    given, decoded, cached = tokens
    return span(
        trace,
        key,
        "chat tiny",
        start,
        end,
        gen_ai__request__model="tiny",
        gen_ai__usage__input_tokens=given + cached,
        caesura__appended_tokens=given,
        gen_ai__usage__output_tokens=decoded,
        gen_ai__response__time_to_first_chunk=0.512,
        gen_ai__usage__cache_read__input_tokens=cached,
        caesura__request__id=request.rsplit("-", 1)[0],
    )


def tool(
    trace: str, key: str, name: str, start: float, end: float | None, **attributes: Any
) -> Entry:
    return span(
        trace,
        key,
        f"execute_tool {name}",
        start,
        end,
        gen_ai__tool__name=name,
        gen_ai__tool__call__id=f"call-{trace}{key}",
        **attributes,
    )


def spans(said: Mapping[str, str] | None = None) -> list[Entry]:
    """The runs of the four; `said` is what each tool returned, if content was captured."""
    results = {
        name: {
            "gen_ai__tool__call__arguments": json.dumps({"query": f"about {name}"}),
            "gen_ai__tool__call__result": text,
        }
        for name, text in (said or {}).items()
    }
    begun = [run(trace, request, start, end) for trace, request, start, end in RUNS]
    return [
        *(one for one, _ in begun),
        chat("a", "1", A, 0.0, 2.0, (150, 49, 0)),
        tool("a", "2", "search", 2.0, 6.0, **results.get("search", {})),
        chat("a", "3", A, 6.0, 9.0, (41, 60, 199)),
        chat("b", "1", B, 1.0, 4.0, (270, 40, 0)),
        tool("b", "2", "ask_user", 4.0, 8.0, **results.get("ask_user", {})),
        chat("b", "3", B, 8.0, 10.0, (20, 30, 0)),
        chat("c", "1", C, 8.8, 9.5, (80, 16, 0)),
        tool("c", "2", "calculator", 9.5, None),
        chat("d", "1", D, 3.0, 9.5, (480, 40, 0)),
        tool("d", "2", "weather", 9.0, 9.4, error__type="timeout"),
        *(one for _, one in begun if one["end"] is not None),
    ]


RUNS = [("a", A, 0.0, 9.0), ("b", B, 1.0, 10.0), ("c", C, 8.8, None), ("d", D, 3.0, 9.5)]


def forecast(request: str, calls: int, at: float) -> Entry:
    """What two predictors expect of a segment."""
    table = {"decode_tokens": 80.0, "calls_left": 2.0, "ends_now": 0.25, "ends_within_3": 0.75}
    model = {"decode_tokens": 50.0, "calls_left": 1.5 - calls, "ends_now": 0.6, "pause_seconds": 3}
    return {
        "kind": "forecast",
        "request": request,
        "session": request,
        "at": BEGAN + at,
        "calls": calls,
        "predictions": [
            {"predictor": "history", **table},
            {"predictor": "hazard", **model, "decode_quantiles": [20.0, 45.0, 90.0]},
        ],
    }


FORECASTS = [forecast(A, 0, 0.0), forecast(B, 0, 1.0), forecast(D, 0, 3.0)]
RETURNS = [forecast(A, 1, 6.0), forecast(B, 1, 8.0)]


def session(request: str, arrival: float, at: float, calls: int) -> Entry:
    return {
        "kind": "session",
        "request": request,
        "session": request,
        "arrival": BEGAN + arrival,
        "at": BEGAN + at,
        "given_tokens": 41,
        "decoded_tokens": 60,
        "calls": calls,
        "outcome": "stop",
    }


def entries(said: Mapping[str, str] | None = None) -> list[Entry]:
    """The whole recording in the order in which an engine and a server would write it."""
    return [
        *spans(said)[: len(RUNS)],
        *FORECASTS,
        opening(SEARCH),
        opening(ASKED, person=True, swap_pays=False),
        opening(CALCULATED),
        lanes(STATES),
        WAIT,
        steps(),
        *RETURNS,
        SEARCH_PAUSE,
        ASKED_PAUSE,
        session(A, 0.0, 9.0, 1),
        session(B, 1.0, 10.0, 1),
        session(D, 3.0, 9.5, 0),
        *spans(said)[len(RUNS) :],
    ]


def recording(number: int = 1, title: str = "made by hand", **more: Any) -> Recording:
    about = {"model": "tiny", "handling": "caesura", "block_size": 16, "total_blocks": 64}
    given: dict[str, Any] = {"started": BEGAN, "ended": BEGAN + 10, "about": about} | more
    return Recording(number, title, "serve", **given)


def state(request: str, name: str, second: float) -> dict[str, Any]:
    return lanes([(second, request, name, 4, 0, 64)])


REFUSED = {"kind": "http", "route": "/v1/chat/completions"}
SEARCH_FAILED = "error: HTTP 503 from upstream search-{number} after {number} s"
EQUAL_CALLS = {"caesura__tool__call_digest": "0f"}


def failing() -> list[dict[str, Any]]:
    """The recording by hand, with a search that fails four times for equal arguments."""
    calls = [
        tool(
            "a",
            f"f{number}",
            "search",
            2.0 + number,
            2.5 + number,
            error__type="failed",
            gen_ai__tool__call__result=SEARCH_FAILED.format(number=number),
            **EQUAL_CALLS,
        )
        | {"message": "", "status": "error"}
        for number in range(4)
    ]
    refusals = [
        {**REFUSED, "at": BEGAN + 1, "status": 404, "code": "model_not_found", "count": 2},
        {**REFUSED, "at": BEGAN + 6, "status": 404, "code": "session_not_found"},
    ]
    return [*entries(), *calls, *refusals]


REPLAYED = """
def replay(task, tell):
    fared = dict(latency_p50=1.0, latency_p99=2.0, ttft_mean=0.1, ttft_p99=0.2, recomputed=30)
    replays = [
        dict(fared, result=1, latency_mean=4.0 + place, faster=0, slower=2 * place)
        for place, _ in enumerate(task["policies"])
    ]
    return dict(sessions=2, was=dict(fared, latency_mean=9.0), replays=replays)
"""
"""What a replay's child answers at once: each further policy is a second slower."""
