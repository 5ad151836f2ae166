import importlib.util
import subprocess
import sys

import pytest

from caesura.distribution import install
from caesura.tools.services import SetupError
from tests.tools.environment.playing import FROZEN_LAKE, need_alfworld, toolset

WITHOUT_GPL = """
import sys
from pathlib import Path
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.services import Services
from caesura.tools.config.toolset import Toolset
Toolset(Services(ArtifactStore(Path("a")), Path("d"))).make("environment")
print([name for name in ("alfworld", "textworld", "jericho", "gymnasium") if name in sys.modules])
"""


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"backend": "doom"}, "alfworld"),
        ({"task_types": ["sing"]}, "pick_and_place_simple"),
        ({"max_step": 3}, "max_step"),
        ({"backend": "gymnasium"}, "id must be set together"),
        ({"id": "Taxi-v4"}, "id must be set together"),
        ({"backend": "gymnasium", "id": "NoSuch-v1"}, "NoSuch"),
        ({"backend": "gymnasium", "id": "no_such_module:Env"}, "no_such_module"),
        ({"backend": "gymnasium", "id": "Pendulum-v1"}, "only Discrete and Text"),
        ({**FROZEN_LAKE, "kwargs": {"size": 3}}, "size"),
        ({**FROZEN_LAKE, "actions": ["left"]}, "4 actions, got 1 names"),
    ],
)
def test_a_mistake_is_told_in_one_sentence_when_the_tool_is_made(tmp_path, settings, sentence):
    with pytest.raises(SetupError, match=r"\[tools.environment\]") as raised:
        toolset(tmp_path, settings).make("environment")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "settings, extra", [({}, "alfworld"), (FROZEN_LAKE, "environment")], ids=["worlds", "gym"]
)
def test_a_missing_package_is_told_with_what_to_install(tmp_path, monkeypatch, settings, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError) as raised:
        toolset(tmp_path, settings).make("environment")
    assert str(raised.value).endswith(f"which is not installed: {install(extra)}")


def test_the_process_that_serves_imports_none_of_the_games(tmp_path):
    need_alfworld()
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_GPL], cwd=tmp_path, capture_output=True, text=True
    )
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_what_the_model_is_told(tmp_path):
    need_alfworld()
    tool = toolset(tmp_path, {}).make("environment")
    assert tool.name == "environment"
    assert list(tool.parameters["properties"]) == ["action"]
    assert tool.arguments('{"action": "look"}') == {"action": "look"}
