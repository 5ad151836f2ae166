"""The table of what follow-ups compute, measured again on real engines."""

import pytest

from .families import FAMILIES
from .follow_up_counts import PAGE, lines_of, row

RUNNING = [name for name, family in FAMILIES.items() if family.runs_here]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNING)
def test_the_docs_tell_what_follow_ups_compute(name: str) -> None:
    assert lines_of([row(name)])[-1] in PAGE.read_text().splitlines()
