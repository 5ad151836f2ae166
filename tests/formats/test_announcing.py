"""What is announced of a call before its end is certain: no more than the call, and its name."""

import pytest

from caesura.intercept.calls.events import ArgumentsDelta, CallStarted
from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.scheduler.vllm.client.parsing.reading import MAX_CHARACTERS, Announcer, CallReader
from tests.formats.cases import TOOLS
from tests.formats.world import Outcome, decode, stand_in

KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>{}:0<|tool_call_argument_begin|>{}"
CLOSED = "<|tool_call_end|><|tool_calls_section_end|>"
LONG = "a" * 70
BROKEN = {
    "hermes": '<tool_call>{"name": "search", "arguments": {"query": "oak}}</tool_call>',
    "kimi_k2": KIMI.format("functions.search", '{"query": "oak}') + CLOSED,
    "deepseek_v31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "oak}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
}


def read(name: str, text: str, step: int) -> Outcome:
    model = stand_in(name)
    return decode(model, model.by_bytes(text), TOOLS, step)


def streamed(outcome: Outcome) -> str:
    return "".join(each.text for each in outcome.events if isinstance(each, ArgumentsDelta))


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("name", BROKEN)
def test_nothing_behind_a_string_that_never_ends_is_an_argument(name: str, step: int) -> None:
    outcome = read(name, BROKEN[name] + " Here is what I think about it.", step)
    assert [part[0] for part in outcome.summary] == ["malformed", "text"]
    assert streamed(outcome) in ("", '{"query": "oak}', '{"query": "oak}}')
    assert outcome.shown.strip() == "Here is what I think about it."


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_name_of_any_length_is_the_one_that_was_written(step: int) -> None:
    outcome = read("kimi_k2", KIMI.format(LONG, '{"query": "x"}') + CLOSED, step)
    assert outcome.calls == [(LONG, '{"query": "x"}')]
    inner = '{"q": {"name": "search", "arguments": {}}}'
    outcome = read("mistral_v11", f"[TOOL_CALLS]{LONG}[ARGS]{inner}", step)
    assert outcome.calls == [(LONG, inner)]


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_what_looks_like_a_head_within_an_argument_is_none(step: int) -> None:
    arguments = '{"query":"b:1<|tool_call_argument_begin|>{"}'
    outcome = read("kimi_k2", KIMI.format("functions.search", arguments) + CLOSED, step)
    assert outcome.calls == [("search", arguments)]


def test_arguments_stream_as_they_come_at_any_length() -> None:
    arguments = '{"query": "' + "oak trees " * 1000 + '"}'
    text = f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>'
    outcome = read("hermes", text, 1)
    assert outcome.calls == [("search", arguments)]
    events = list(outcome.events)
    assert isinstance(events[0], CallStarted)
    assert max(len(each.text) for each in events if isinstance(each, ArgumentsDelta)) < 40


def test_what_is_too_long_to_be_announced_is_not_kept() -> None:
    form = TURN_FORMATS["pythonic"]
    announcer = Announcer(form, CallReader(form, stand_in("pythonic").tokenizer))
    for piece in ["[search(query='", *["oak trees " * 10] * 1000]:
        assert all(each.arguments != "" or each.name for each in announcer.push(piece))
    streamed = announcer._follow.__self__  # type: ignore[union-attr]
    assert len(streamed._read) < 2 * MAX_CHARACTERS
