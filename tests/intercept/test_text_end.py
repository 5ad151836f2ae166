"""Where a running text is cut: behind a line or a sentence, never within a character or a call."""

import pytest

from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import TextEnd, Verdict, Watch, WatchPlan

TEXTS = [
    *("One", " two", ".", " Three", "\n", "3", ".", "14", "<tool_call>", "</tool_call>"),
    *("<think>", "</think>", '{"name": "look", "arguments": {}}', "!", '"'),
]
END = len(TEXTS)
ID = {text: number for number, text in enumerate(TEXTS)}


def cut(texts: list[str], tokens: int = 100) -> int | None:
    """Return how many tokens are read before the cut."""
    end = TextEnd(tokens)
    return next((at + 1 for at, text in enumerate(texts) if end.found(text.encode())), None)


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["One", " two", ".", " Three"], 3),
        (["One", "\n", " two", "."], 2),
        (["One", " two", '."', " Three"], 3),
        (["pi is 3", ".", "14", "."], None),
        (["3", ".", "14", "!"], 4),
        (["\u4f60\u597d", "\u3002", "x"], 2),
        (["One", " two", " three"], None),
    ],
)
def test_a_text_is_cut_behind_a_line_or_a_sentence(texts: list[str], read: int | None) -> None:
    assert cut(texts) == read


def test_a_bound_cuts_at_any_whole_character() -> None:
    assert cut(["One", " two", " three"], 2) == 2
    first, second = "\u4f60".encode()[:1], "\u4f60".encode()[1:]
    end = TextEnd(1)
    assert not end.found(first) and end.found(second)


def watch() -> Watch:
    vocabulary = Vocabulary([text.encode() for text in [*TEXTS, ""]])
    return Watch(WatchPlan(("hermes",), ("look",)), vocabulary, frozenset({END}))


def stopped(made: Watch, *texts: str) -> tuple[int, Verdict] | None:
    return made.first_stop([ID.get(text, END) for text in texts])


def test_a_turn_is_cut_where_it_is_told_to_be() -> None:
    made = watch()
    assert stopped(made, "One", " two", ".") is None
    made.cut_soon(100)
    assert stopped(made, " Three", "\n", "One") == (1, Verdict.CUT)


def test_a_turn_that_ends_first_waits_too() -> None:
    made = watch()
    made.cut_soon(100)
    assert stopped(made, "One", " two", "end") == (2, Verdict.CALL)


def test_no_call_is_cut() -> None:
    made = watch()
    made.cut_soon(1)
    body = '{"name": "look", "arguments": {}}'
    assert stopped(made, "<tool_call>", "\n", body, "\n", "</tool_call>", "end") == (
        5,
        Verdict.CALL,
    )


def test_no_thinking_is_cut() -> None:
    made = watch()
    made.cut_soon(1)
    assert stopped(made, "<think>", "One", ".", "\n", "</think>", "One") == (5, Verdict.CUT)
