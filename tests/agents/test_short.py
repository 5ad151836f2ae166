"""Two agents at a real server: their newest releases, one template."""

from pathlib import Path

import pytest

from tests.agents.clients import CLAUDE, CODEX
from tests.agents.gate import Gate
from tests.agents.install import Missing, install
from tests.agents.page import within_a_block
from tests.agents.results import Outcome
from tests.agents.templates import TEMPLATES


@pytest.mark.slow
def test_codex_and_claude_code_do_their_task(tmp_path: Path) -> None:
    try:
        versions = {each: install(each, newest=False) for each in (CODEX, CLAUDE)}
    except Missing as missing:
        pytest.skip(str(missing))
    found: dict[str, Outcome] = {}
    Gate(TEMPLATES[0], "caesura serve", tmp_path).run(
        versions, lambda client, outcome: found.update({client.name: outcome})
    )
    for each in found.values():
        assert (each.lacks, each.refused) == ([], [])
        assert (each.thinking, each.usage) == ("apart", True)
        assert len(each.follow_ups) == 5
    assert all(within_a_block(*pair) for pair in found["Codex"].follow_ups)
