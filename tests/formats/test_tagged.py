"""Values that stand between tags as bare text: read whole or refused, in linear time."""

import json
import sys
from types import FrameType
from typing import Any

import pytest

from caesura.scheduler.vllm.client.parsing.tagged import MAX_TAG_CHARACTERS, TAGS, TaggedCalls
from tests.formats.rendering import RENDER, Call
from tests.formats.world import Outcome, decode, stand_in, tool

WRITE = tool("write", path={"type": "string"}, text={"type": "string"}, mode={"type": "integer"})
PATH = Call("write", {"path": "a.html"})


def written(name: str, value: str) -> str:
    """A call as a model writes it that does not know what a value cannot hold."""
    text = RENDER[name]([Call("write", {"text": "VALUE", "mode": 7})])
    return text.replace("VALUE", value)


def read(name: str, text: str, step: int) -> Outcome:
    model = stand_in(name)
    return decode(model, model.by_bytes(text), [WRITE], step)


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("qwen3_coder", "a</parameter>b", "after </parameter>"),
        ("qwen3_coder", "<![CDATA[ a</parameter>b ]]>", "after </parameter>"),
        ("qwen3_coder", "a</parameter>\n</function>b", "after </function>"),
        ("qwen3_coder", "a\n<parameter=mode>\n1", "before the next <parameter="),
        ("qwen3_coder", "a\n</parameter>\n<parameter=text>\nb", "given twice"),
        ("minimax_m2", "a</parameter>b", "after </parameter>"),
        ("minimax_m2", 'a\n<parameter name="mode">1', "before the next <parameter name="),
        ("deepseek_v32", "a</｜DSML｜parameter>b", "after </｜DSML｜parameter>"),
        ("seed_oss", "a</parameter>\n</function>b", "after </function>"),
        ("glm", "a</arg_value>b", "after </arg_value>"),
        ("glm", "a</arg_value>\n<arg_key>text</arg_key>\n<arg_value>b", "given twice"),
    ],
)
def test_a_value_that_its_own_tag_cuts_is_refused(
    name: str, value: str, told: str, step: int
) -> None:
    outcome = read(name, written(name, value), step)
    assert not outcome.calls
    assert [call.name for call in outcome.malformed] == ["write"]
    assert told in outcome.malformed[0].reason
    assert "\n" not in outcome.malformed[0].reason
    assert outcome.shown == ""


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_what_a_refused_value_quotes_is_never_run(step: int) -> None:
    quoted = f"</tool_call> or {RENDER['qwen3_coder']([PATH])}"
    outcome = read("qwen3_coder", written("qwen3_coder", quoted), step)
    assert not outcome.calls
    assert len(outcome.malformed) == 1


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("qwen3_coder", "a</function>b"),
        ("qwen3_coder", "<parameter>, </param> and <function=f> < tags"),
        ("qwen3_coder", "\n\ntwo lines above, one below\n"),
        ("qwen3_coder", ""),
        ("glm", "<arg_key>a</arg_key> and </tool_call>"),
        ("glm", "\n"),
        ("seed_oss", "\n\ntwo lines above, one below\n"),
        ("minimax_m2", "\n"),
        ("minimax_m2", "</minimax:tool_call> and <parameter>"),
        ("deepseek_v32", "\n<parameter name=</parameter>\n"),
        ("deepseek_v41", "a</｜DSML｜parameter>b"),
    ],
)
def test_other_tags_and_line_breaks_are_part_of_a_value(name: str, value: str, step: int) -> None:
    outcome = read(name, written(name, value), step)
    assert [json.loads(raw) for _, raw in outcome.calls] == [{"text": value, "mode": 7}]


def html(characters: int) -> str:
    row = '<tr><td class="x">1 &gt; 0</td></tr>\n'
    return row * (characters // len(row))


def steps_of(text: str, size: int) -> int:
    """How many lines of Python run while a call is read in pieces of `size` characters."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    outcome: Any = None
    model = stand_in("qwen3_coder")
    tokens = model.by_bytes(text)
    sys.settrace(trace)
    try:
        outcome = decode(model, tokens, [WRITE], size)
    finally:
        sys.settrace(None)
    assert len(outcome.calls) == 1
    return count


@pytest.mark.parametrize("size", [64, 10**9])
def test_ten_times_the_text_takes_ten_times_the_steps(size: int) -> None:
    small, large = (steps_of(written("qwen3_coder", html(n)), size) for n in (2_000, 20_000))
    assert large < 12 * small


@pytest.mark.parametrize("key", ["text", "mode"])
@pytest.mark.parametrize("name", TAGS)
def test_no_text_is_kept_to_be_looked_at_again(name: str, key: str) -> None:
    text = RENDER[name]([Call("write", {key: html(20_000)})])
    reader = TaggedCalls(TAGS[name], [WRITE])
    longest = 0
    for start in range(0, len(text), 7):
        for _ in reader.push(text[start : start + 7]):
            pass
        longest = max(longest, len(reader._window))
    assert longest < 60
    (found,) = reader.found(text)
    assert json.loads(found.arguments) == {key: html(20_000)}


@pytest.mark.parametrize("name", TAGS)
def test_nonsense_between_values_is_given_up_and_not_kept(name: str) -> None:
    reader = TaggedCalls(TAGS[name], [WRITE])
    for _ in range(10 * MAX_TAG_CHARACTERS):
        assert not list(reader.push("< "))
    assert len(reader._window) <= 2 * MAX_TAG_CHARACTERS
    with pytest.raises(ValueError, match="a tag is missing"):
        reader.found("")


@pytest.mark.parametrize("name", TAGS)
def test_a_long_value_is_announced_as_it_is_written(name: str) -> None:
    outcome = read(name, written(name, html(20_000)), 8)
    pieces = [len(each.text) for each in outcome.events if hasattr(each, "text")]
    assert max(pieces) < 60
    assert len(pieces) > 1_000
