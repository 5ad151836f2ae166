"""Conformance suites: a row of the page, and which of them `--only` chooses."""

from tests.clients.__main__ import wanted
from tests.clients.suites import Suite


def suite(*found: tuple[str, str]) -> Suite:
    return Suite("compatcanary", "chat", lambda url: found)


def test_a_row_counts_outcomes_and_names_failures() -> None:
    row = suite(
        ("a", "passed"), ("b", "failed"), ("c", "passed"), ("d", "skipped"), ("e", "failed")
    )
    assert row.row("ours", "http://here") == ["compatcanary", "chat", "ours", "2", "2", "1", "b, e"]


def test_only_chooses_suites_by_parts_of_their_names() -> None:
    assert wanted(suite(), [])
    assert wanted(suite(), ["canary", "chat"])
    assert not wanted(suite(), ["canary", "modern"])
