"""A server whose model asks another gets the tool, beside the tools of its own configuration."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from caesura.planning.application.application import Application, ApplicationError, Model, Task
from caesura.planning.application.requests import Requests
from caesura.planning.run.asking import with_configs
from caesura.planning.run.client import ApplicationQuestions
from caesura.planning.run.host import Replica
from caesura.planning.run.processes import engine_command

ROWS = ({"prompt": "Why?"},)
MODELS = (Model("agent", "org/agent"), Model("expert", "org/expert"))
TASK = Task("solve", "agent", "{{ prompt }}", ROWS, asks=("expert",), tools=("clock",))
APPLICATION = Application("test", MODELS, (TASK,))


def url_of(model: str) -> str:
    return f"http://127.0.0.1:9/{model}/v1"


def configured(application: Application, folder: Path) -> Model:
    return with_configs(application, folder / "made", url_of).model("agent")


def test_the_agents_server_has_the_experts_address(tmp_path: Path) -> None:
    model = configured(APPLICATION, tmp_path)
    assert tomllib.loads(Path(model.config).read_text()) == {
        "allow_private": True,
        "tools": {"ask_model": {"url": url_of("expert"), "model": "expert"}},
    }
    command = engine_command(Replica(model, 0, (0,)))
    assert command[command.index("--config") + 1] == model.config
    expert = with_configs(APPLICATION, tmp_path, url_of).model("expert")
    assert "--config" not in engine_command(Replica(expert, 0, (0,)))


def test_the_models_own_configuration_is_kept(tmp_path: Path) -> None:
    own = tmp_path / "caesura.toml"
    own.write_text(
        '[tools]\nenabled = ["clock", "ask_model"]\n'
        "[tools.ask_model]\nmax_tokens = 9\n[tools.clock]\n"
    )
    agent = replace(MODELS[0], config=str(own))
    model = configured(replace(APPLICATION, models=(agent, MODELS[1])), tmp_path)
    tools = tomllib.loads(Path(model.config).read_text())["tools"]
    assert tools["enabled"] == ["clock", "ask_model"]
    assert set(tools) == {"enabled", "clock", "ask_model"}
    assert tools["ask_model"] == {"max_tokens": 9, "url": url_of("expert"), "model": "expert"}
    own.write_text('[tools]\nenabled = ["clock"]\n')
    with pytest.raises(ApplicationError, match="name 'ask_model' in"):
        configured(replace(APPLICATION, models=(agent, MODELS[1])), tmp_path)


def test_the_tool_expects_what_is_known_of_answers(tmp_path: Path) -> None:
    expected = {"expert": 2.5, "agent": 9.0}

    def settings(application: Application) -> dict[str, object]:
        made = with_configs(application, tmp_path / "made", url_of, expected).model("agent")
        tool: dict[str, object] = tomllib.loads(Path(made.config).read_text())["tools"]["ask_model"]
        return tool

    assert settings(APPLICATION)["expected_seconds"] == 2.5
    own = tmp_path / "caesura.toml"
    own.write_text("[tools.ask_model]\nexpected_seconds = 7.0\n")
    agent = replace(MODELS[0], config=str(own))
    assert settings(replace(APPLICATION, models=(agent, MODELS[1])))["expected_seconds"] == 7.0


def test_a_model_asks_one_other(tmp_path: Path) -> None:
    other = replace(TASK, name="other", asks=("agent",))
    with pytest.raises(ApplicationError, match="'agent' asks 'expert' and 'agent'"):
        configured(replace(APPLICATION, tasks=(TASK, other)), tmp_path)


def test_requests_of_the_task_may_call_the_tool() -> None:
    requests = Requests(APPLICATION)
    question = ApplicationQuestions(requests)(requests.all[0], {})
    assert question.tools == ("clock", "ask_model")
