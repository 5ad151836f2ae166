"""How models vary ReAct's lines: read where the meaning is plain, else refused in words."""

import json

import pytest

from caesura.intercept.calls.formats import REACT
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.vllm.engine.calls import find_call
from tests.formats.cases import TOOLS
from tests.formats.world import Outcome, decode, stand_in

MODEL = stand_in("react")


def at_every_cut(text: str) -> Outcome:
    """Decode by one token, by all numbers up to 9, and as a whole: the outcome is the same."""
    tokens = MODEL.by_bytes(text)
    whole = decode(MODEL, tokens, TOOLS, len(tokens) + 1)
    for step in range(1, 10):
        outcome = decode(MODEL, tokens, TOOLS, step)
        assert outcome.summary == whole.summary
        assert (outcome.read, outcome.verdict) == (whole.read, whole.verdict)
    return whole


DIALECTS = [
    'Action: search\nAction Input:\n{"query": "oak"}\n',
    'Action: search\nAction Input: {\n  "query": "oak"\n}\n',
    'Action: search\nAction Input:\n```json\n{"query":\n "oak"}\n```\n',
    'Action: search\nAction Input: ```\n{"query": "oak"}\n````\n',
    'Action: search\nAction Input: ```{"query": "oak"}```\n',
    "Action: search\nAction Input:\noak\n",
    "Action: search\nAction Input: `oak`\n",
    "Action: search\nAction Input: {'query': 'oak'}\n",
    '**Action:** search\n**Action Input:** {"query": "oak"}\n',
    '**Action**: `search`\n\n**Action Input**:\n\n{"query": "oak"}\n',
    "action: search\naction input: oak\n",
    "Action: search\r\nAction input: oak\r\n",
]


@pytest.mark.parametrize("text", DIALECTS)
def test_a_dialect_is_read_and_the_request_pauses_behind_the_input(text: str) -> None:
    outcome = at_every_cut(f"{text}more")
    assert [(name, json.loads(given)) for name, given in outcome.calls] == [
        ("search", {"query": "oak"})
    ]
    assert outcome.verdict is Verdict.CALL
    assert outcome.read == len(MODEL.by_bytes(text))
    assert outcome.shown == ""


@pytest.mark.parametrize("behind", ["Observation:", "Thought:", "Final Answer:"])
def test_an_empty_input_ends_at_the_next_label(behind: str) -> None:
    outcome = at_every_cut(f"Action: now\nAction Input:\n{behind} It is late.")
    assert outcome.calls == [("now", "{}")]
    assert outcome.verdict is Verdict.CALL


def test_a_fenced_text_may_have_several_lines() -> None:
    outcome = at_every_cut("Action: search\nAction Input:\n```sql\nSELECT 1\nFROM t\n```\n")
    assert json.loads(outcome.calls[0][1]) == {"query": "SELECT 1\nFROM t"}


def test_brackets_may_begin_a_text() -> None:
    outcome = at_every_cut("Action: search\nAction Input: [oak OR elm] AND tree\n")
    assert json.loads(outcome.calls[0][1]) == {"query": "[oak OR elm] AND tree"}


@pytest.mark.parametrize("name", ["None", "N/A", "`none`", "Finish"])
def test_an_action_that_is_none_is_text_and_the_turn_goes_on(name: str) -> None:
    text = f"Action: {name}\nAction Input: None\nFinal Answer: 42"
    for lead in ("", "Thought: done.\n", "Action: x\n"):
        outcome = at_every_cut(lead + text)
        assert outcome.summary == [("text", lead + text)]
        assert outcome.verdict is Verdict.END


def test_a_call_behind_an_action_that_is_none_is_run() -> None:
    none = "Action: None\nAction Input: None\n"
    outcome = at_every_cut(f"{none}Action: search\nAction Input: oak\n")
    assert outcome.calls == [("search", '{"query": "oak"}')]
    assert outcome.shown == none


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Action: search\nAction Input: {'query': }\n", "not valid JSON"),
        ("Action: search\nAction Input: {'query': {1, 2}}\n", "not valid JSON"),
        ("Action: search\nAction Input: {1: 2}\n", "not valid JSON"),
        ("Action: search\nAction Input: ['oak']\n", "must be a JSON object"),
        ("Action: search\nAction Input: ```\noak\nelm", "block of code"),
        ("Action:\nAction Input: 1\n", 'write a line "Action: TOOL"'),
        ("Action Input: 1\n", 'write a line "Action: TOOL"'),
    ],
)
def test_what_is_ambiguous_is_refused_in_words(text: str, reason: str) -> None:
    outcome = at_every_cut(text)
    assert not outcome.calls
    assert len(outcome.malformed) == 1
    assert reason in outcome.malformed[0].reason
    assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("text", [text for text in DIALECTS if text.endswith("\n")])
def test_the_engine_sees_which_tool_is_called(text: str) -> None:
    for lead in ("", "Thought: trees.\n", "Action: now\nAction Input: {}\nObservation: 1\n"):
        tokens = MODEL.by_bytes(lead + text)
        call = find_call(tokens, MODEL.vocabulary, [REACT])
        assert call is not None and call.tool == "search"
