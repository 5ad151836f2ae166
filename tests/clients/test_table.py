"""The table of client libraries: what is written is read again, and what became worse is found."""

from tests.clients.check import Result
from tests.clients.table import failing, page, read

GOOD = Result("openai", "stream", "pass")
BAD = Result("openai", "n", "fail", "AssertionError: 1 | 2")


def text() -> str:
    results = {
        "ours": {("openai", "stream"): GOOD, ("openai", "n"): BAD},
        "theirs": {("openai", "stream"): BAD},
    }
    return page(results, {"openai": "3"}, [])


def test_the_page_is_read_again() -> None:
    assert read(text(), "ours") == {("openai", "stream"): "pass", ("openai", "n"): "fail"}
    assert read(text(), "theirs") == {("openai", "stream"): "fail"}
    assert read(text(), "another") == {}


def test_a_reason_stays_in_its_cell() -> None:
    assert "| ours | openai: n | fail | AssertionError: 1 / 2 |" in text()


def test_only_what_passed_can_become_worse() -> None:
    worse = Result("openai", "stream", "ignored", "no effect")
    assert failing([worse, BAD], read(text(), "ours")) == [worse]
    assert failing([GOOD, BAD], read(text(), "ours")) == []
