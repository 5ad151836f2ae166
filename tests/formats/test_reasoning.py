"""What a model thinks is reasoning, apart from its answer, however its tokens are cut."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from caesura.intercept.calls.events import ReasoningDelta, TextDelta
from caesura.intercept.calls.formats import HARMONY
from caesura.intercept.calls.markers import SpelledOpeners
from caesura.intercept.calls.thinking import REGIONS, Thinking, regions_shown
from caesura.intercept.calls.watch import Verdict
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.parsing import channel_parser
from caesura.scheduler.vllm.client.parsing.reader import TurnReader
from caesura.scheduler.vllm.client.parsing.shown import ShownLogprobs
from caesura.scheduler.vllm.tokenizer import template_of, thinking_regions
from tests.formats.cases import SEARCH, TOOLS
from tests.formats.rendering import RENDER
from tests.formats.world import decode, stand_in

NAMES = [name for name in RENDER if name != "harmony"]
OWN = tuple(REGIONS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt", ["", "<think>"])
def test_thinking_is_reasoning_and_its_markers_are_shown_to_nobody(name: str, prompt: str) -> None:
    model = stand_in(name)
    opener = "" if prompt else "<think>"
    text = f"{opener}\nLet me see: 1 < 2.\n</think>\n\nI look.\n" + RENDER[name]([SEARCH])
    if name in ("llama3_json", "pythonic"):
        text = text.replace("I look.\n", "")
    tokens = model.spelled(text)
    for step in (*range(1, 12), len(tokens) + 1):
        outcome = decode(model.plain, tokens, TOOLS, step, thinking=prompt, apart=OWN)
        assert outcome.reasoning == "Let me see: 1 < 2."
        assert outcome.shown.strip() in ("I look.", "")
        assert [name for name, _ in outcome.calls] == ["search"]
        assert outcome.verdict is Verdict.CALL
        assert outcome.message["reasoning"] == "Let me see: 1 < 2."
        assert "think" not in json.dumps(outcome.message["content"])


def test_unfinished_thinking_is_reasoning() -> None:
    model = stand_in("hermes")
    tokens = model.spelled("<think>\nLet me see </thi")
    for step in (1, 4, 100):
        outcome = decode(model, tokens, TOOLS, step, cut=True, apart=OWN)
        assert outcome.summary == [("reasoning", "Let me see </thi")]


def test_regions_of_other_models_are_text() -> None:
    model = stand_in("hermes")
    text = "[THINK]a[/THINK]\n<think>b</think>c"
    outcome = decode(model, model.spelled(text), TOOLS, 3, apart=("<think>",))
    assert outcome.summary == [
        ("text", "[THINK]a[/THINK]\n"),
        ("reasoning", "b"),
        ("text", "c"),
    ]


def test_two_regions_have_an_empty_line_between_them() -> None:
    model = stand_in("hermes")
    text = "<think>a</think>b\n<think>c</think>d"
    outcome = decode(model, model.spelled(text), TOOLS, 2, apart=OWN)
    assert outcome.message == {"role": "assistant", "content": "b\nd", "reasoning": "a\n\nc"}


def reader(apart: tuple[str, ...], opener: str = "", stops: tuple[str, ...] = ()) -> TurnReader:
    """A reader of a turn without tools."""
    return TurnReader(None, None, stops, Thinking((), opener, apart), SpelledOpeners((), None))


def read(turn: TurnReader, text: str, step: int, at_stop: bool = False) -> list[tuple[str, str]]:
    events: list[Any] = []
    for start in range(0, len(text), step):
        last = start + step >= len(text)
        piece = text[start : start + step]
        events += turn.push(piece, [0], ended=last, at_stop=at_stop and last)
    events += turn.end()
    found: list[tuple[str, str]] = []
    for event in events:
        assert isinstance(event, TextDelta | ReasoningDelta)
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        if found and found[-1][0] == kind:
            kind, text = kind, found.pop()[1] + event.text
        else:
            text = event.text
        found.append((kind, text))
    return found


def test_a_turn_without_tools_is_split_if_the_model_thinks() -> None:
    text = "<think>a</think>b"
    assert read(reader(("<think>",)), text, 1) == [("reasoning", "a"), ("text", "b")]
    assert read(reader(()), text, 1) == [("text", text)]


@pytest.mark.parametrize("stop", ["STOP", "</think>"])
def test_a_stop_text_ends_the_reasoning(stop: str) -> None:
    for step in (1, 3, 50):
        turn = reader(("<think>",), stops=(stop,))
        assert read(turn, f"<think>a {stop}", step, at_stop=True) == [("reasoning", "a")]
        assert turn.stop_text == stop


PIECES = ["<think>", "</think>", "[THINK]", "\n", " ", "word", "<", "é", "<think", "[/THINK]"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(1, 9), st.booleans())
def test_the_split_does_not_depend_on_how_text_is_cut(
    parts: list[str], step: int, opened: bool
) -> None:
    text, opener = "".join(parts), "<think>" if opened else ""
    whole = read(reader(OWN, opener), text, 1000) if text else []
    assert (read(reader(OWN, opener), text, step) if text else []) == whole


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, "", "\n\n"]), max_size=12))
def test_text_without_a_marker_at_the_begin_of_a_line_is_unchanged(parts: list[str]) -> None:
    text = "x" + "".join(parts).replace("\n", " ")
    assert read(reader(OWN), text, 2) == [("text", text)]


def test_reasoning_tokens_are_those_that_end_within_thinking() -> None:
    turn = reader(("<think>",))
    tokens = ["<think>", "\n", "Let", " me", " see", ".\n", "</think>", "\n\n", "Yes", "."]
    for token in tokens:
        list(turn.push(token, [0]))
    list(turn.end())
    sizes = [len(token.encode()) for token in tokens]
    assert turn.reasoning_tokens(sizes, 0) == 5
    assert turn.reasoning_tokens(sizes[3:], sum(sizes[:3])) == 3


def test_log_probabilities_are_those_of_the_answer() -> None:
    texts = [b"<think>", b"the", b"</think>", b"th", b"e"]
    shown = ShownLogprobs.of(0, lambda token: texts[token])
    assert shown is not None
    shown.push(range(5), [{token: SimpleNamespace(logprob=0.0)} for token in range(5)])
    shown.reasoned("the")
    assert [token.data for token in shown.shown("the")] == [b"th", b"e"]


@pytest.mark.parametrize("reads_calls", [True, False])
def test_the_analysis_of_harmony_is_reasoning(reads_calls: bool) -> None:
    model = stand_in("harmony")
    text = (
        "<|channel|>analysis<|message|>Hm, 2.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 2."
    )
    tokens = model.by_bytes(text)
    if reads_calls:
        outcome = decode(model, tokens, TOOLS, 3, end="<|return|>")
        assert outcome.summary == [("reasoning", "Hm, 2."), ("text", "It is 2.")]
        assert outcome.message["reasoning"] == "Hm, 2."
        return
    turn = TurnReader(
        channel_parser(HARMONY, model.tokenizer), None, (), Thinking(()), SpelledOpeners((), None)
    )
    events = [event for token in tokens for event in turn.push("?", [token])]
    events += turn.end()
    assert turn.message() == {"role": "assistant", "content": "It is 2.", "reasoning": "Hm, 2."}
    assert turn.reasoning_tokens([], 0) == len("Hm, 2.")


def test_a_harmony_call_that_is_not_read_is_text() -> None:
    model = stand_in("harmony")
    tokens = model.by_bytes(RENDER["harmony"]([SEARCH]))
    turn = TurnReader(
        channel_parser(HARMONY, model.tokenizer), None, (), Thinking(()), SpelledOpeners((), None)
    )
    events = [*turn.push("", tokens), *turn.end()]
    assert all(isinstance(event, TextDelta) for event in events)
    assert json.loads(turn.text) == SEARCH.arguments


def test_the_template_or_the_vocabulary_shows_the_regions() -> None:
    assert regions_shown("{{ x }}</think>", {}) == ("<think>",)
    assert regions_shown("", {"[THINK]", "[/THINK]", "<think>"}) == ("[THINK]",)
    assert regions_shown("none", {"none"}) == ()


def test_a_reasoning_parser_names_the_region() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    template = template_of(tokenizer)
    assert thinking_regions(tokenizer, template, ["hermes"], "") == ()
    tokenizer.add_tokens(["<seed:think>", "</seed:think>", "<think>", "</think>"])
    assert thinking_regions(tokenizer, template, ["hermes"], "") == ("<think>", "<seed:think>")
    assert thinking_regions(tokenizer, template, ["hermes"], "seed_oss") == ("<seed:think>",)
    assert thinking_regions(tokenizer, template, ["harmony"], "openai_gptoss") == ()
    with pytest.raises(UsageError, match="--reasoning-parser no_such"):
        thinking_regions(tokenizer, template, ["hermes"], "no_such")
