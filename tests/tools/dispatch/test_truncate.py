import re
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.tools import Dispatcher, Registry, ToolCall, tool
from caesura.tools.context import ToolRun
from caesura.tools.result import ResultLimits, fit_tokens

pytestmark = pytest.mark.timeout(120)

NOTE = re.compile(r" ?\[cut: (\d+) (tokens|characters) in all, (\d+)(?: tokens)? shown\]\Z")


def words(text: str) -> int:
    return len(text.split())


def pieces(text: str) -> int:
    """As a byte-level tokenizer counts: up to four bytes, never over a space."""
    return sum(-(-len(part.encode()) // 4) for part in re.findall(r" ?[^ ]+| ", text))


def uneven(text: str) -> int:
    """Grows and shrinks as the text grows."""
    return len(text) + (len(text) * 7919) % 5


COUNTERS = [len, words, pieces, uneven, lambda text: 2 * len(text), lambda text: len(text) // 8]


@given(
    st.text(max_size=300) | st.text("ab \U0001f600\ud800", max_size=3000),
    st.integers(1, 400),
    st.sampled_from(COUNTERS),
)
def test_it_never_has_more_tokens_than_allowed(text, most, count):
    cut = fit_tokens(text, most, count, 2000)
    cut.encode()
    found = NOTE.search(cut)
    if found is None or cut == text:
        assert cut == text.encode("utf-8", "replace").decode()
        assert count(cut) <= most
        return
    kept = cut[: found.start()]
    assert text.encode("utf-8", "replace").decode().startswith(kept)
    assert int(found[3]) == count(kept)
    # Where the note alone is too long, nothing else is left.
    assert count(cut) <= most or kept == ""
    if found[2] == "characters":
        assert int(found[1]) == len(text) > max(2000, 8 * most)
    else:
        assert int(found[1]) == count(text.encode("utf-8", "replace").decode())


@given(st.text("aé \n\U0001f600", min_size=500, max_size=20_000), st.integers(60, 300))
def test_what_it_keeps_is_close_to_what_is_allowed(text, most):
    cut = fit_tokens(text, most, pieces, 20_000)
    if cut != text:
        assert pieces(cut) >= 0.9 * most - 4


def test_few_questions_are_asked():
    asked = []

    def count(text: str) -> int:
        asked.append(len(text))
        return pieces(text)

    dense = "\U0001f600" * 5000 + "word " * 3000
    assert pieces(fit_tokens(dense, 2000, count, 20_000)) <= 2000
    assert len(asked) <= 20


def test_a_counter_that_makes_no_sense_ends_too():
    answers = iter(range(10**6, 0, -1))
    assert NOTE.fullmatch(fit_tokens("x" * 1000, 10, lambda text: next(answers), 20_000))


def test_short_texts_stay_as_they_are():
    assert fit_tokens("It is 42.", 3, words, 100) == "It is 42."


def test_how_a_cut_reads():
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    assert fit_tokens(text, 12, words, 100) == (
        "one two three four fiv [cut: 13 tokens in all, 5 shown]"
    )
    assert fit_tokens("word " * 100, 12, words, 20) == (
        "word word word word [cut: 500 characters in all, 4 tokens shown]"
    )


@tool
async def talk(count: int) -> str:
    """Say many words."""
    return "word " * count


@tool(max_result_tokens=20)
async def whisper(count: int) -> str:
    """Say fewer."""
    return "word " * count


def call(name: str, count: int) -> ToolCall:
    return ToolCall("c", name, f'{{"count": {count}}}')


def counted(count: Callable[[str], int], *most: int) -> ToolRun:
    return ToolRun(results=ResultLimits(count, *most))


async def content(session: Dispatcher, name: str, count: int) -> str:
    return (await session.run(call(name, count))).content


async def test_the_dispatcher_cuts_by_tokens():
    session = Dispatcher(Registry([talk, whisper]), counted(words, 50))
    assert await content(session, "talk", 50) == "word " * 50
    assert (await content(session, "talk", 80)).endswith("[cut: 80 tokens in all, 43 shown]")
    assert (await content(session, "whisper", 80)).endswith("[cut: 80 tokens in all, 13 shown]")
    session = Dispatcher(Registry([talk]), counted(words))
    assert "cut" not in await content(session, "talk", 2000)
    assert words(await content(session, "talk", 2001)) <= 2000


async def test_errors_are_cut_too():
    @tool
    async def wail() -> None:
        raise ValueError("no " * 100)

    session = Dispatcher(Registry([wail]), counted(words, 20))
    result = await session.run(ToolCall("c", "wail", "{}"))
    assert result.content.startswith("error: no no")
    assert words(result.content) <= 20


async def test_a_result_takes_at_most_a_quarter_of_the_context():
    limits = ResultLimits.of_model(words, 400)
    session = Dispatcher(Registry([talk]), ToolRun(results=limits))
    assert words(await content(session, "talk", 500)) <= 100


async def test_long_results_are_counted_in_a_thread():
    threads = set()

    def count(text: str) -> int:
        threads.add(threading.current_thread() is threading.main_thread())
        return words(text)

    session = Dispatcher(Registry([talk]), counted(count))
    await content(session, "talk", 10)
    assert threads == {True}
    threads.clear()
    await content(session, "talk", 3000)
    assert threads == {False}
