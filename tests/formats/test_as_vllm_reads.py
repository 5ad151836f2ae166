"""Rows read whole calls as the tool parsers of vLLM's do that name them, types included."""

import json

import pytest

from caesura.intercept.calls.formats import NAMES
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.vllm.client.model_formats import ROWS
from tests.formats.bfcl_data import Turn, sample
from tests.formats.readers import Calls, by_row, by_vllm
from tests.formats.rendering import RENDER, Unwritable
from tests.formats.vllm_turns import CALL, TURNS
from tests.formats.world import decode, stand_in, tool

WEATHER = tool("weather", city={"type": "string"}, days={"type": "integer"})
PARSERS = {parser: ROWS.get(parser, parser) for parser in TURNS if parser in {*ROWS, *NAMES}}
"""The rows of parsers that a turn of their own is known of."""

SINGLE = {"internlm"}
"""Rows of which vLLM's parser reads one call a turn, and fails at a second one."""
CLOSER = "]</tool_calls>"


def written(row: str) -> list[tuple[Turn, str]]:
    """Turns of a public benchmark that the row can write and vLLM's parser can read."""
    turns = []
    for turn in sample()[::4]:
        try:
            calls = turn.calls[:1] if row in SINGLE else turn.calls
            turns.append((turn, RENDER[row](calls)))
        except Unwritable:
            continue
    return turns


@pytest.mark.parametrize("parser", PARSERS)
def test_a_row_reads_the_turn_of_the_parser_that_names_it(parser: str) -> None:
    model, text = stand_in(PARSERS[parser]), TURNS[parser]
    for written_by, tokens in (
        (model, model.by_bytes(text)),
        (model.plain, model.spelled(text)),
    ):
        outcome = decode(written_by, tokens, [WEATHER], 7)
        assert [(name, json.loads(raw)) for name, raw in outcome.calls] == [CALL]
        assert outcome.shown == ""
        assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("parser", PARSERS)
def test_a_row_and_the_parser_read_the_same(parser: str) -> None:
    row = PARSERS[parser]
    turns = written(row)
    assert len(turns) > 10
    for turn, text in turns:
        vllms = by_vllm(parser, stand_in(row), text, turn.tools)
        assert json.dumps(by_row(row, text, turn.tools)) == json.dumps(vllms), text


def test_arguments_that_are_a_text_of_json_are_the_object() -> None:
    """As Granite's parser reads them."""
    given = json.dumps({"name": "weather", "arguments": json.dumps({"city": 'a "b" {c}'})})
    text = f"<tool_call>\n{given}\n</tool_call>"
    expected = [("weather", {"city": 'a "b" {c}'})]
    assert by_vllm("granite4", stand_in("hermes"), text, [WEATHER]) == expected
    assert by_row("hermes", text, [WEATHER]) == expected
    model, no_object = stand_in("hermes"), text.replace("{", "[").replace("[", "{", 1)
    assert not decode(model, model.by_bytes(no_object), [WEATHER]).calls


@pytest.mark.parametrize(
    ("inside", "read"),
    [
        ('[{"name": "now", "arguments": {}}, {"name": "a"}]', [("now", {}), ("a", {})]),
        ('[ {"arguments": {"x": "]</tool_calls>"}, "name": "now"} ]', [("now", {"x": CLOSER})]),
        ('[{"name": "now", "arguments": []}]', []),
        ('[{"name": "now", "arguments": {}}, {"name": 1, "arguments": {}}]', []),
        ('[{"name": "now", "arguments": {}}] and so on', []),
        ('{"name": "now", "arguments": {}}', [("now", {})]),
    ],
)
def test_a_list_of_calls_is_read_whole_or_not_at_all(inside: str, read: Calls) -> None:
    assert by_row("hunyuan_a13b", f"<tool_calls>{inside}</tool_calls>", [tool("now")]) == read
