"""What every format has to write and read: calls, the text around them, and how they are cut."""

import json
from dataclasses import dataclass

import pytest

from caesura.intercept.calls.watch import Verdict
from tests.formats.rendering import ONE_AT_A_TIME, RENDER, Call
from tests.formats.world import Outcome, StandIn, stand_in, tool

TEXT = {"type": "string"}
TOOLS = [
    tool("search", query=TEXT),
    tool("search_web", query=TEXT),
    tool("now"),
    tool(
        "plan",
        title=TEXT,
        days={"type": "array"},
        rules={"type": "object"},
        ratio={"type": "number"},
        open={"type": "boolean"},
    ),
]
SEARCH = Call("search", {"query": "oak trees"})
NOW = Call("now", {})
PLAN = Call(
    "plan",
    {
        "title": 'a "quoted" \\ path\n\tand {braces} [too], it\'s',
        "days": [1, -2, [3.5, {"deep": [None, True, "é"]}], []],
        "rules": {"one": {"two": {"three": {"four": [{"five": "</end>"}]}}}, "none": {}},
        "ratio": 0.25,
        "open": False,
    },
)
WIDE = Call("search", {"query": 'Zürich — 東京 😀 مرحبا \\u00e9 "é" \\\\n C:\\temp'})

# Formats that are calls from the first character on have no text around them.
ANCHORED = {"llama3_json", "pythonic"}
BEFORE = "Let me see, <b>now</b> [1] {x}: "


@dataclass(frozen=True)
class Case:
    """Calls, and the text around them."""

    calls: tuple[Call, ...]
    before: str = ""
    after: str = ""


CASES = {
    "one": Case((SEARCH,)),
    "several": Case((SEARCH, NOW, PLAN, SEARCH)),
    "nested": Case((PLAN,)),
    "unicode": Case((WIDE,)),
    "no arguments": Case((NOW,)),
    "prefix of another name": Case((Call("search_web", {"query": "x"}), SEARCH)),
    "unknown tool": Case((Call("telephone", {"number": "12"}),)),
    "text before": Case((SEARCH,), before=BEFORE),
    "text before and after": Case((SEARCH,), before=BEFORE, after=" And so on."),
}


def written(name: str, case: Case) -> str:
    """The turn as a model of this format would write it."""
    before = case.before if name not in ANCHORED else ""
    after = case.after if name not in ANCHORED | ONE_AT_A_TIME else ""
    calls = case.calls[:1] if name in ONE_AT_A_TIME else case.calls
    text = RENDER[name](calls)
    if name == "harmony":
        shown = f"<|channel|>commentary<|message|>{before}<|end|><|start|>assistant"
        text = (shown if before else "") + text.removesuffix("<|call|>")
    return before * (name != "harmony") + text + after


def shown(name: str, case: Case) -> str:
    """What the reader should see of it."""
    before = case.before if name not in ANCHORED else ""
    if name == "react":
        return before + "\n"
    return before + (case.after if name not in ANCHORED | ONE_AT_A_TIME else "")


def cuts(name: str, text: str) -> list[tuple[StandIn, list[int]]]:
    """Tokens of a model with the family's special tokens, and of one that spells them."""
    model = stand_in(name)
    ways = [(model, model.by_bytes(text))]
    if name != "harmony":  # whose special tokens are never spelled out
        ways.append((model.plain, model.spelled(text)))
    return ways


def check(outcome: Outcome, name: str, case: Case) -> None:
    calls = case.calls[:1] if name in ONE_AT_A_TIME else case.calls
    assert [(got, json.loads(arguments)) for got, arguments in outcome.calls] == [
        (call.name, call.arguments) for call in calls
    ]
    assert not outcome.malformed
    assert outcome.shown == shown(name, case)
    assert outcome.verdict is Verdict.CALL


def check_prose(outcome: Outcome, text: str) -> None:
    """The whole turn is text: nothing is a call, and the engine did not pause for one."""
    assert outcome.summary == [("text", text)]
    assert outcome.verdict is Verdict.END


def expressible(name: str, case: Case) -> bool:
    """Whether the format has such calls: in some, a call of an unknown tool is prose."""
    return not (name in {*ANCHORED, "inline"} and case.calls[0].name == "telephone")


PAIRS = [
    pytest.param(name, case, id=f"{name}-{label}")
    for name in RENDER
    for label, case in CASES.items()
    if expressible(name, case)
]
