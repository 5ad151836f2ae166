"""Calls of `qwen3_coder` whose `<tool_call>` the model has left out."""

import json

import pytest

from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import NOW, PLAN, SEARCH, TOOLS
from tests.formats.rendering import Call, qwen3_coder
from tests.formats.world import Outcome, decode, stand_in


def bare(*calls: Call, closed: bool) -> str:
    """Calls without openers; the closer is often there all the same."""
    texts = [qwen3_coder([call]).removeprefix("<tool_call>\n") for call in calls]
    return "\n".join(text if closed else text.removesuffix("\n</tool_call>") for text in texts)


def read(text: str, step: int, cut: bool = False) -> Outcome:
    model = stand_in("qwen3_coder")
    return decode(model, model.by_bytes(text), TOOLS, step, cut=cut)


def calls_in(outcome: Outcome) -> list[tuple[str, object]]:
    return [(name, json.loads(arguments)) for name, arguments in outcome.calls]


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("before", ["", "Let me look.\n", "One\n\ntwo <tool.\n\n"])
def test_a_call_at_the_beginning_of_a_line_is_read(before: str, closed: bool, step: int) -> None:
    outcome = read(before + bare(SEARCH, closed=closed), step)
    assert calls_in(outcome) == [tuple(SEARCH)]
    assert outcome.shown == before.removesuffix("\n")
    assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("closed", [True, False])
def test_several_calls_with_and_without_it(closed: bool, step: int) -> None:
    text = f"{bare(SEARCH, NOW, closed=closed)}\n{qwen3_coder([PLAN])}"
    outcome = read(text, step)
    assert calls_in(outcome) == [tuple(SEARCH), tuple(NOW), tuple(PLAN)]
    assert (outcome.shown, outcome.malformed) == ("", [])


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(
    "text",
    [
        "Write `<function=search>` and its parameters.",
        "\n<function=telephone>\n<parameter=number>\n1\n</parameter>\n</function>",
        "So:\n<function=search> is how it begins, </function> how it ends.\n",
        "<function=sear",
    ],
)
def test_a_mention_is_text(text: str, step: int) -> None:
    assert read(text, step).summary == [("text", text)]


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_call_behind_a_mention_is_read(step: int) -> None:
    mention = "So:\n<function=search> is how it begins.\n"
    outcome = read(mention + qwen3_coder([SEARCH]), step)
    assert calls_in(outcome) == [tuple(SEARCH)]
    assert outcome.shown == mention


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("tail", [" and so on", "\n</parameter>\n</function>"])
def test_text_behind_its_end_refuses_it(tail: str, step: int) -> None:
    outcome = read(bare(SEARCH, closed=False) + tail, step)
    assert not outcome.calls
    assert len(outcome.malformed) == 1


def test_no_prefix_of_it_runs_with_other_arguments() -> None:
    text = bare(PLAN, closed=False)
    for size in range(len(text) + 1):
        assert calls_in(read(text[:size], len(text))) in ([], [tuple(PLAN)])
        assert not read(text[:size], len(text), cut=True).calls


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_only_the_call_behind_the_thinking_is_read(step: int) -> None:
    thought = f"<think>\nI could write\n{bare(NOW, closed=False)}\n</think>\n\n"
    outcome = read(thought + bare(SEARCH, closed=False), step)
    assert calls_in(outcome) == [tuple(SEARCH)]
    assert outcome.verdict is Verdict.CALL
