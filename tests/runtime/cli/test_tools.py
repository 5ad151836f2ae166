"""`caesura tools`: what is shown of the tools, and trying them."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caesura.runtime.cli import ask_chat as talk
from caesura.runtime.cli.app import app
from caesura.runtime.cli.tool_calls import SAMPLES
from caesura.tools.config.toolset import BUILTINS, Toolset

HOSTILE = Path(__file__).parents[2] / "tools" / "mcp" / "hostile.py"


@pytest.fixture
def configured(tmp_path):
    """Runs `caesura` with a configuration."""

    def run(text: str, *arguments: str):
        path = tmp_path / "caesura.toml"
        path.write_text(text)
        command = [*arguments, "--config", str(path)]
        # A terminal wide enough that no line is broken.
        return CliRunner(env={"COLUMNS": "400"}).invoke(app, command)

    return run


def server(*allowed: str, behaviour: str = "") -> str:
    args = json.dumps(["-S", "-E", str(HOSTILE), behaviour])
    return (
        f"[mcpServers.odd]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"
        f"allow = {json.dumps(allowed)}\nstart_seconds = 5\n"
    )


def test_the_list_says_what_is_on_and_why_what_is_not(configured):
    text = (
        "[tools]\nenabled = ['calculator', 'clock', 'generate_image']\n"
        "[tools.clock]\napproval = true\nconcurrency = 3\n" + server("fine", "slow")
    )
    result = configured(text, "tools", "list", "--json")
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == [*BUILTINS, "slow", "fine"]
    assert rows["calculator"]["on"]
    assert rows["clock"]["approval"]
    assert rows["clock"]["concurrency"] == 3
    assert not rows["search"]["on"]
    assert rows["search"]["why_off"] == "not among the enabled tools"
    assert not rows["generate_image"]["on"]
    assert rows["generate_image"]["why_off"]
    assert rows["fine"]["backend"] == "MCP odd"


def test_a_server_that_does_not_answer_is_listed_as_off(configured):
    result = configured(
        "[tools]\nenabled = []\n" + server(behaviour="exit") + "required = true", "tools", "list"
    )
    assert result.exit_code == 0, result.output
    assert "exit status 1: no licence" in result.stdout


def test_a_tool_is_tried(configured):
    result = configured("", "tools", "test", "calculator")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == "  1024"
    result = configured("", "tools", "test", "calculator", '{"expression": "1/0"}')
    assert result.exit_code == 1
    assert "division by zero" in result.stdout


def test_a_tool_that_is_off_is_tried_all_the_same(configured):
    result = configured("[tools]\nenabled = []", "tools", "test", "clock")
    assert result.exit_code == 0, result.output


def test_a_servers_tool_is_tried_with_arguments(configured):
    text = "[tools]\nenabled = []\n" + server("fine")
    result = configured(text, "tools", "test", "fine", "{}")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "  fine")
    assert (
        "fine has no sample call: give its arguments"
        in configured(text, "tools", "test", "fine").stderr
    )


def test_all_is_a_summary(configured):
    text = "[tools]\nenabled = ['calculator', 'clock', 'ask_user']\n" + server("fine")
    result = configured(text, "tools", "test", "all")
    assert result.exit_code == 0, result.output
    assert "skipped ask_user: needs a person at a terminal" in result.stdout
    assert "skipped fine: " in result.stdout
    assert result.stdout.splitlines()[-1] == "2 of 2 work, 2 skipped"


def test_what_was_tried_as_json(configured):
    text = "[tools]\nenabled = ['calculator', 'ask_user']\n"
    one = configured(text, "tools", "test", "calculator", '{"expression": "1/0"}', "--json")
    [row] = json.loads(one.stdout)
    assert (one.exit_code, row["name"], row["error"]) == (1, "calculator", "failed")
    every = configured(text, "tools", "test", "all", "--json")
    ran, skipped = json.loads(every.stdout)
    assert (every.exit_code, ran["content"], ran["error"], ran["artifacts"]) == (
        0,
        "1024",
        None,
        [],
    )
    assert skipped == {"name": "ask_user", "skipped": "needs a person at a terminal"}


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", ("tools", "test", "calculater"), "unknown tool 'calculater'; did you mean"),
        ("", ("tools", "test", "all", "{}"), "`all` takes no arguments"),
        ("[tols]", ("tools", "list"), "unknown key 'tols'; did you mean 'tools'"),
        ("[tools.clock]\nzone = 1", ("tools", "test", "clock"), "[tools.clock]: unknown key"),
    ],
)
def test_a_mistake_is_a_line_and_exit_code_2(configured, text, arguments, said):
    result = configured(text, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [("ask", "Hi"), ("ask", "Hi", "--tool", "clok"), ("chat",), ("serve",)],
)
def test_it_is_told_before_an_engine_is_loaded(configured, monkeypatch, arguments):
    def never(*given: object, **more: object) -> None:
        raise AssertionError("the engine was started")

    monkeypatch.setattr(talk, "engine_on", never)
    monkeypatch.setattr("caesura.runtime.cli.serve.engine_on", never)
    text = "" if "clok" in arguments else "[tools.clock]\nzone = 1"
    result = configured(text, *arguments)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1


def test_every_builtin_has_a_sample_that_its_schema_takes(tmp_path):
    from caesura.tools.config.caesura_toml import Config

    toolset: Toolset = Config().toolset()
    for tool in toolset.enabled_tools():
        assert tool.arguments(json.dumps(SAMPLES[tool.name]))
    assert set(SAMPLES) == set(BUILTINS)
