"""`caesura eval`: the table, the files, the exit code, and Ctrl-C."""

import asyncio
import sys
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura import ScriptedEngine
from caesura.evals import Report
from caesura.runtime.cli import ask_chat
from caesura.runtime.cli.app import app
from caesura.runtime.evals.command import Wanted, named, run
from caesura.runtime.testing import call, say

MODULE = '''
import asyncio
from caesura import Agent, ScriptedEngine
from caesura.runtime.testing import call, say

PRICES = {"lamp": 24, "chair": 59}
reached = asyncio.Event()


def price(item: str) -> int:
    """Look up what an item costs."""
    return PRICES[item]


def model(messages, tools):
    last = messages[-1]
    if last["role"] == "tool":
        return say(f"It is {last['content']} euros.")
    return call("price", item=last["content"].split()[-1].strip("?"))


clerk = Agent(ScriptedEngine(model), [price], name="clerk")


async def hangs(prompt):
    if "chair" in prompt:
        reached.set()
        await asyncio.Event().wait()
    return "It is 24 euros."


number = 3
'''
CASES = """
checks:
  - contains: euros
cases:
  - name: lamp
    prompt: How much is a lamp?
    checks: [contains: "24", calls: price]
  - name: chair
    prompt: How much is a chair?
    checks: [contains: "60"]
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with an agent, of a name of its own, in the working directory."""
    name = f"evaluated_{sum(each.startswith('evaluated_') for each in sys.modules)}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "cases.yaml").write_text(CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name


def invoke(*arguments: str) -> tuple[int, str]:
    """Run the command as in a process of its own, which imports the module anew."""
    for name in [each for each in sys.modules if each.startswith("evaluated_")]:
        del sys.modules[name]
    result = CliRunner().invoke(app, ["eval", "cases.yaml", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_it_prints_a_table_and_writes_files(shop: str, tmp_path: Path) -> None:
    code, said = invoke(
        *("--agent", f"{shop}:clerk", "--samples", "3"),
        *("--out", "results.json", "--junit", "results.xml"),
    )
    assert code == 1
    assert "lamp 3/3 100% 44% to 100%" in said
    assert "chair 0/3 0% 0% to 56%" in said
    assert "['60'] missing" in said
    report = Report.load(tmp_path / "results.json")
    assert [case.rate for case in report.cases] == [1, 0] and report.complete
    assert ET.parse(tmp_path / "results.xml").getroot().get("failures") == "1"


def test_the_exit_code_is_that_of_the_cases(shop: str) -> None:
    agent = ("--agent", f"{shop}:clerk")
    assert invoke(*agent, "--case", "lamp")[0] == 0
    assert invoke(*agent, "--pass-rate", "0")[0] == 0
    code, said = invoke(*agent, "--case", "lump")
    assert code == 1 and "--case 'lump' is not in cases.yaml; there are: ['lamp', 'chair']" in said


def test_earlier_results_are_compared(shop: str, tmp_path: Path) -> None:
    agent = ("--agent", f"{shop}:clerk")
    invoke(*agent, "--out", "old.json")
    text = (tmp_path / "cases.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(text.replace('"60"', '"59"'))
    code, said = invoke(*agent, "--compare", "old.json", "--out", "old.json")
    assert code == 0
    assert "chair 0% 100% better" in said
    assert "1 better, 0 worse, 1 alike; 50% before, 100% now; p = 1 (sign test)" in said
    assert Report.load("old.json").rate == 1


@pytest.mark.parametrize(
    ("agent", "code", "said"),
    [
        ("{}", 2, "there is no agent '{}' in [agents]; there are: none"),
        ("{}.py:", 2, 'names nothing in Python: write "module:attribute"'),
        ("{}:klerk", 2, "has no 'klerk': did you mean 'clerk'?"),
        ("no_{}:clerk", 2, "there is no module"),
        ("{}:number", 1, "is no agent and no function of a prompt, got 3"),
    ],
)
def test_a_wrong_agent_is_told(shop: str, agent: str, code: int, said: str) -> None:
    found, told = invoke("--agent", agent.format(shop))
    assert found == code
    assert said.format(shop) in told and "Traceback" not in told


def test_an_agent_of_the_configuration_is_evaluated(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def engine_on(*_: object) -> AsyncIterator[ScriptedEngine]:
        yield ScriptedEngine([call("calculator", expression="20+4"), say("24 euros")])

    monkeypatch.setattr(ask_chat, "engine_on", engine_on)
    config = tmp_path / "caesura.toml"
    config.write_text('[agents.clerk]\ninstructions = "Count."\ntools = ["calculator"]\n')
    (tmp_path / "cases.yaml").write_text('[{prompt: "A lamp?", checks: [contains: "24"]}]')
    code, told = invoke("--agent", "clerk", "--config", "caesura.toml")
    assert code == 0, told
    assert "A lamp? 1/1 100%" in told


async def test_an_interruption_keeps_what_is_done(shop: str, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    wanted = Wanted(Path("cases.yaml"), out=out, concurrency=1)
    running = asyncio.create_task(run(wanted, named(f"{shop}:hangs")))
    await asyncio.sleep(0)  # it runs up to its first answers
    await sys.modules[shop].reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    report = Report.load(out)
    assert [case.name for case in report.cases] == ["lamp"]
    assert not report.complete
