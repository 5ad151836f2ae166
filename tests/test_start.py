"""What the pages of docs/start tell a reader to run does what they say."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli.app import app

ROOT = Path(__file__).parent.parent
START = ROOT / "docs" / "start"


def commands(page: str) -> list[list[str]]:
    """Return the commands of `caesura` on a page, in their order."""
    text = (START / page).read_text()
    return [shlex.split(each) for each in re.findall(r"^caesura (.*)$", text, re.MULTILINE)]


def with_option(words: list[str], name: str, value: str) -> list[str]:
    """Return a command with another value of an option that it has."""
    place = words.index(name) + 1
    return [*words[:place], value, *words[place + 1 :]]


def test_the_program_of_the_first_agent_is_the_example() -> None:
    block = re.search(r"^```python\n(.*?)^```", (START / "agent.md").read_text(), re.S | re.M)
    example = (ROOT / "examples" / "01_first_agent.py").read_text()
    assert block is not None
    said = re.findall(r"async with .*|.*agent\.run\(.*|asyncio\.run.*", block[1])
    assert len(said) == 3
    assert all(line in example for line in said)


@pytest.mark.slow
def test_the_first_study_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = next(words for words in commands("study.md") if words[0] == "simulate")
    short = with_option(with_option(first, "--seconds", "10"), "--seeds", "1")
    ran = CliRunner().invoke(app, short)
    assert ran.exit_code == 0, ran.output
    assert "stock" in ran.output
    assert (tmp_path / "report" / "report.md").read_text().startswith("#")
    assert json.loads((tmp_path / "report" / "report.json").read_text())


def test_the_list_of_what_can_be_simulated_is_printed() -> None:
    assert ["simulate", "--list"] in commands("study.md")
    ran = CliRunner().invoke(app, ["simulate", "--list"])
    assert ran.exit_code == 0
    assert "gptj-6b-a100-40g" in ran.output and "mix" in ran.output
