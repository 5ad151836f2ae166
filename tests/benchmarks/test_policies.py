"""The studies behind docs/policies.md."""

from pathlib import Path

import pytest

from benchmarks import policies


def test_every_part_has_its_place_in_the_page() -> None:
    page = policies.PAGE.read_text()
    for part in policies.parts():
        assert page.count(f"<!-- begin {part.name} -->") == 1
        assert page.count(f"<!-- end {part.name} -->") == 1
        assert part.study.baseline in part.study.policy_names


def test_tables_replace_those_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n<!-- begin mix -->\nold\n<!-- end mix -->\nmore\n")
    monkeypatch.setattr(policies, "PAGE", page)
    for table in ("first", "second"):
        policies._write({"mix": [table]})
    assert page.read_text() == "text\n<!-- begin mix -->\n\nsecond\n\n<!-- end mix -->\nmore\n"
