"""The stream of a response's events, over runs of all shapes."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import RunEnded, RunEvent, ToolReturned, Usage
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses.answer import Answer, Shown
from caesura.runtime.server.responses.resource import Resource
from caesura.runtime.server.responses.schema import ResponseRequest
from caesura.scheduler.messages import Sampling
from caesura.tools.result import ToolCall, ToolResult

NAMES = ("theirs", "shown", "hidden", "asking", "unknown")
SHOWN = Shown(
    client={"theirs": ("theirs", None)},
    server=frozenset({"shown", "asking"}),
    approved=frozenset({"asking"}),
    label="caesura",
    pausing=True,
)
CLIENTS = Shown(client={name: (name, None) for name in NAMES})


def answer(shown: Shown = SHOWN, **fields: Any) -> Answer:
    request = ResponseRequest(model="m", input="x", **fields)
    return Answer(Resource(request, Sampling()), shown)


def turn_end(reason: Any) -> TurnEnded:
    return TurnEnded(reason, prompt_tokens=3, completion_tokens=2, cached_tokens=1)


def returned(call_id: str, name: str, error: Any = None) -> ToolReturned:
    result = ToolResult(call_id, name, "4", error, started_at=0.0, seconds=0.0, attempts=1)
    return ToolReturned(ToolCall(call_id, name, "{}"), result)


PIECES = st.lists(st.sampled_from(["{", "}", ' "a": 1', ""]), max_size=3)
CALLS = st.tuples(st.sampled_from(NAMES), PIECES, st.booleans())
TEXTS = ["", " ", "\n", "word", " more", "thought:a", "thought: b"]
TURNS = st.tuples(st.lists(st.sampled_from(TEXTS), max_size=3),
                  st.lists(CALLS, max_size=3), st.booleans())  # fmt: skip


def events_of(turns: Any, order: Any, shown: Shown) -> Iterator[RunEvent]:
    """The events of a run as the run loop yields them: results come in any order."""
    number = 0
    for texts, calls, inline in turns:
        calls = calls[:1] if inline else calls
        for text in texts:
            thought = text.startswith("thought:")
            yield ReasoningDelta(text[8:]) if thought else TextDelta(text)
        made: list[tuple[str, str]] = []
        for name, pieces, malformed in calls:
            number += 1
            call_id, arguments = f"call{number}", "".join(pieces)
            yield CallStarted(call_id, name, inline)
            yield from (ArgumentsDelta(call_id, piece) for piece in pieces if piece)
            if malformed:
                yield CallMalformed(call_id, name, arguments, "cut", inline)
            else:
                yield CallFinished(call_id, name, arguments, inline)
            if shown.pausing and (malformed or name != "theirs"):
                made.append((call_id, name))
        yield turn_end("call" if calls else "stop")
        theirs = any(name == "theirs" and not malformed for name, _, malformed in calls)
        if not calls or theirs or not shown.pausing:
            break
        order.shuffle(made)
        yield from (returned(*call) for call in made)
    yield RunEnded("stop", "", Usage())


@given(st.lists(TURNS, min_size=1, max_size=4), st.randoms(), st.sampled_from([SHOWN, CLIENTS]),
       st.integers(0, 60), st.sampled_from(["end", "cut", "fail", "cancel"]))  # fmt: skip
def test_every_run_makes_a_well_formed_stream(
    checked: Any, turns: Any, order: Any, shown: Shown, length: int, ending: str
) -> None:
    """Whatever the model writes, and wherever the run is broken off."""
    made = answer(shown)
    events = made.begin()
    run = list(events_of(turns, order, shown))
    for event in run if ending == "end" else run[:length]:
        events += made.take(event)
    if ending == "cut":
        made.cut()
    last = {"fail": lambda: made.fail(ApiError(500, "no")), "cancel": made.cancel}
    events += last.get(ending, lambda: made.end(0.0))()
    checked(events)


def stream(made: Answer, *run: RunEvent) -> list[dict[str, Any]]:
    events = made.begin()
    for event in run:
        events += made.take(event)
    return events + made.end(100.0)


def test_text_and_calls_keep_to_the_open_responses_schema(specification: Any) -> None:
    made = answer(CLIENTS, tools=[{"type": "function", "name": "theirs"}])
    run = [
        TextDelta("I look."),
        CallStarted("c1", "theirs"),
        ArgumentsDelta("c1", "{}"),
        CallFinished("c1", "theirs", "{}"),
        turn_end("call"),
        RunEnded("calls", "", Usage()),
    ]
    events = stream(made, *run)
    for event in events:
        specification.check_event(event)
    specification.check(events[-1]["response"], "ResponseResource")
    assert [item["type"] for item in events[-1]["response"]["output"]] == [
        "message",
        "function_call",
    ]
    assert events[-1]["response"]["usage"]["total_tokens"] == 5


def test_reasoning_is_an_item_before_what_it_led_to(specification: Any, checked: Any) -> None:
    events = stream(
        answer(CLIENTS),
        ReasoningDelta("Shall"),
        ReasoningDelta(" I?"),
        TextDelta("\n"),
        CallFinished("c1", "theirs", "{}"),
        TurnEnded("call", 3, 5, 0, reasoning_tokens=2),
        RunEnded("calls", "", Usage()),
    )
    checked(events)
    response = events[-1]["response"]
    specification.check(response, "ResponseResource")
    thought, made = response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Shall I?"}]
    assert (thought["type"], thought["status"], thought["summary"]) == (
        "reasoning",
        "completed",
        [],
    )
    assert made["type"] == "function_call"
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
    kinds = [event["type"] for event in events if event.get("item_id") == thought["id"]]
    assert kinds == [
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
    ]


def test_reasoning_that_a_limit_cut_is_incomplete() -> None:
    run = [ReasoningDelta("Hm"), turn_end("length"), RunEnded("length", "", Usage())]
    (item,) = stream(answer(), *run)[-1]["response"]["output"]
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")


def test_items_wait_until_the_one_before_is_closed() -> None:
    made = answer()
    made.begin()
    for number in ("1", "2"):
        made.take(CallStarted(number, "shown"))
        made.take(CallFinished(number, "shown", "{}"))
    made.take(turn_end("call"))
    assert made.take(returned("2", "shown")) == []
    kinds = [event["type"] for event in made.take(returned("1", "shown"))]
    assert kinds[:3] == [
        "response.mcp_call.completed",
        "response.output_item.done",
        "response.output_item.added",
    ]
    assert kinds[-1] == "response.output_item.done"


def test_calls_by_the_server_show_only_if_they_are_named() -> None:
    events = stream(
        answer(),
        CallStarted("1", "hidden"),
        CallFinished("1", "hidden", "{}"),
        turn_end("call"),
        returned("1", "hidden"),
        TextDelta("4"),
        turn_end("stop"),
    )
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["caesura"]["calls"][0]["name"] == "hidden"


def test_a_failed_call_tells_its_error_in_the_form_of_mcp() -> None:
    run = [CallFinished("1", "shown", "{}"), turn_end("call"), returned("1", "shown", "failed")]
    (item,) = stream(answer(), *run)[-1]["response"]["output"]
    assert (item["status"], item["output"]) == ("failed", None)
    assert item["error"] == {"type": "mcp_tool_execution_error", "content": "4"}


def test_an_approval_ends_the_response_and_the_next_one_shows_the_call(checked: Any) -> None:
    first = answer()
    events = first.begin()
    events += first.take(CallFinished("1", "asking", "{}"))
    assert not first.waits
    events += first.take(turn_end("call")) + first.ask("1", "mcpr_1", "{}")
    assert first.waits
    checked(events + first.end(0.0))
    second = first.following(Resource(ResponseRequest(model="m", input="x"), Sampling()))
    events = second.begin() + second.take(returned("1", "asking")) + second.end(0.0)
    checked(events)
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["approval_request_id"]) == ("mcp_call", "mcpr_1")


def test_a_cut_answer_is_incomplete(specification: Any) -> None:
    made = answer(max_output_tokens=1)
    events = made.begin() + made.take(TextDelta("It")) + made.take(turn_end("length"))
    events += made.take(RunEnded("length", "It", Usage())) + made.end(0.0)
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    specification.check(response, "ResponseResource")


def test_white_space_before_a_call_is_no_message() -> None:
    run = [TextDelta("\n"), CallFinished("1", "theirs", "{}"), turn_end("call")]
    output = stream(answer(CLIENTS), *run)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["function_call"]


def test_an_empty_answer_is_an_empty_message() -> None:
    (item,) = stream(answer(), turn_end("stop"))[-1]["response"]["output"]
    assert item["content"][0]["text"] == ""


def test_a_background_response_is_queued_first() -> None:
    made = answer(background=True)
    told = [(event["type"], event["response"]["status"]) for event in made.begin(queued=True)]
    assert told == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
    ]
