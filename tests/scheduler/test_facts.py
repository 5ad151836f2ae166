"""What predictors are told of a session: facts, hashed words of calls, and errors of results."""

import pytest

from caesura.scheduler.predict.facts import (
    MAX_COUNTED_HEADS,
    MAX_HEADS,
    MAX_WORDS,
    NO_FACTS,
    NO_WORDS,
    WORD_BUCKETS,
    CallWords,
    Facts,
    WordHasher,
    tells_of_error,
)
from tests.scheduler.queues import forecast

HASHER = WordHasher(b"salt")


def heads(call: str) -> tuple[int, ...]:
    return HASHER.words(call.encode()).heads


def test_facts_follow_a_session() -> None:
    facts = Facts(context_tokens=100)
    facts = facts.after_call(30, "bash", CallWords((1, 2), (1,)))
    assert (facts.calls, facts.segment_tokens, facts.tool, facts.words) == (1, 30, "bash", (1, 2))
    facts = facts.after_result(10, True, 140, 2.5)
    assert (facts.context_tokens, facts.seconds, facts.errors, facts.last_error) == (140, 2.5, 1, 1)
    facts = facts.after_call(50, None, CallWords((3,), (1, 4)))
    facts = facts.after_result(30, False, 220, 9.0)
    assert facts == Facts(
        calls=2,
        context_tokens=220,
        seconds=9.0,
        segment_tokens=50,
        segment_mean=40.0,
        result_tokens=30,
        result_mean=20.0,
        errors=1,
        words=(3,),
        heads=((1, 2), (4, 1)),
    )


def test_the_counted_first_words_are_bounded() -> None:
    facts = NO_FACTS
    for head in range(2 * MAX_COUNTED_HEADS):
        facts = facts.after_call(1, "bash", CallWords((), (head,)))
    facts = facts.after_call(1, "bash", CallWords((), (0,)))
    assert len(facts.heads) == MAX_COUNTED_HEADS
    assert facts.heads[0] == (0, 2)


@pytest.mark.parametrize(
    "call",
    [
        "grep -rn word src",
        "```bash\ngrep -n x",
        "[grep(3)",
        "cd /testbed && grep -n x y",
        '<tool_call>{"name": "grep", "arguments": {"x": 3}}',
    ],
)
def test_the_first_word_of_a_command_is_found_in_every_form(call: str) -> None:
    assert heads(call)[0] == heads("grep")[0]


def test_every_command_of_a_line_has_a_first_word() -> None:
    assert heads("ls -la | head; python run.py") == (*heads("ls"), *heads("head"), *heads("python"))


def test_words_are_bounded_buckets() -> None:
    call = " ; ".join(f"word{index}" for index in range(500)).encode()
    found = HASHER.words(call)
    assert 0 < len(found.words) <= MAX_WORDS and 0 < len(found.heads) <= MAX_HEADS
    assert all(0 <= word < WORD_BUCKETS for word in (*found.words, *found.heads))
    assert HASHER.words(b"") == NO_WORDS


def test_another_salt_gives_other_buckets() -> None:
    call = b"grep -rn password accounts"
    assert HASHER.words(call) == WordHasher(b"salt").words(call)
    assert not set(HASHER.words(call).words) & set(WordHasher(b"pepper").words(call).words)


@pytest.mark.parametrize("text", ["Traceback (most", "<returncode>1</", "No such file", "Error"])
def test_an_error_is_recognised(text: str) -> None:
    assert tells_of_error(text.encode())


@pytest.mark.parametrize("text", ["<returncode>0</returncode>", "42", "", "x" * 300 + "error"])
def test_another_result_is_no_error(text: str) -> None:
    assert not tells_of_error(text.encode())


def test_a_forecast_says_how_many_calls_are_left() -> None:
    one = forecast(ends=(0.5, 0.5, 0.0))
    assert one.calls_left() == pytest.approx(0.75)
    chances = [one.ends_within(calls) for calls in (-1, 0, 1, 2, 9)]
    assert chances == [0.0, 0.5, 0.75, 1.0, 1.0]
    assert forecast(ends=()).calls_left() == 0.0
