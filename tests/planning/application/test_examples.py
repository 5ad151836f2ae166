"""The example applications can be read, and their prompts are what their script makes."""

import re
import runpy
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.planning import models as made
from caesura.planning.application.application import ApplicationError
from caesura.planning.application.file import read_application
from caesura.planning.application.requests import Requests

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "applications"
FILES = ("questions.jsonl", "documents.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the examples, with empty directories as models."""
    for path in (*EXAMPLES.glob("*.toml"), *(EXAMPLES / name for name in FILES)):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in ("tiny", "small", "medium", "large"):
        (tmp_path / "models" / name).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_without_its_models_each_says_how_they_are_made(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    with pytest.raises(ApplicationError, match="where a comment in the file says how"):
        read_application(copy)
    command = re.search("^# Make the models first: python -m (.*) (.*)$", copy.read_text(), re.M)
    assert command is not None
    models = tomllib.loads(copy.read_text())["models"].values()
    assert {(EXAMPLES / model["path"]).parent for model in models} == {ROOT / command[2]}
    assert command[1] == made.__name__
    assert {Path(model["path"]).name for model in models} <= {size.name for size in made.SIZES}


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("ensemble", {"tiny": 64, "small": 64, "medium": 64, "large": 64}),
        ("routing", {"tiny": 32, "small": 18, "medium": 9, "large": 5}),
        ("chain_summary", {"medium": 122, "large": 48}),
        ("mixed", {"tiny": 64, "small": 64, "medium": 186, "large": 112}),
    ],
)
def test_each_has_the_requests_of_its_kind(
    folder: Path, name: str, requests: dict[str, int]
) -> None:
    application = read_application(folder / f"{name}.toml")
    assert Counter(request.model for request in Requests(application).all) == requests


def test_the_prompts_are_those_that_the_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = EXAMPLES / "make_prompts.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()


def test_the_program_of_an_ensemble_describes_one() -> None:
    program = runpy.run_path(str(EXAMPLES.parent / "09_ensemble.py"))
    requests = Requests(program["application"]())
    last = requests.all[-1]
    outputs = {"answer@first/2": "The answer is 279.", "answer@second/2": "No."}
    assert requests.messages(last, outputs)[0]["content"] == "What is 279*3?"
