"""The guide's table of refusals names statuses and codes that the server gives."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "troubleshooting.md"
SOURCES = sorted((ROOT / "runtime").rglob("*.py"))


def codes() -> Iterator[str]:
    """Yield the codes of the rows that begin with a status."""
    for line in GUIDE.read_text().splitlines():
        if found := re.match(r"\| [45]\d\d ([^|]*)\|", line):
            yield from re.findall(r"`(\w+)`", found[1])


def test_the_server_gives_the_codes_of_the_guide() -> None:
    given = "\n".join(path.read_text() for path in SOURCES)
    told = set(codes())
    assert len(told) > 8
    assert [code for code in sorted(told) if f'"{code}"' not in given] == []
