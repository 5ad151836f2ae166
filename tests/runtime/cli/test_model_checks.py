"""What `caesura doctor --model` says of a model's calls and thinking."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from caesura.runtime.cli.doctor import model_checks
from caesura.runtime.cli.errors import Complaint
from caesura.runtime.launch import BUNDLED_MODEL
from tests.scheduler.real_templates import TEMPLATES


def said(model: str | Path, formats: Sequence[str] | None = None) -> dict[str, str]:
    """What each check says; a complaint begins with `wrong:`."""
    lines = {}
    for name, check in model_checks(str(model), formats):
        try:
            lines[name] = check()
        except Complaint as complaint:
            lines[name] = f"wrong: {complaint} FIX {complaint.fix}"
    return lines


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of which only the tokenizer and the configuration are there."""
    folder = tmp_path / "qwen3-like"
    folder.mkdir()
    for path in Path(BUNDLED_MODEL).glob("*.json*"):
        shutil.copy(path, folder)
    (folder / "chat_template.jinja").write_text("<think> {{ messages }}")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    return folder


def test_the_bundled_model() -> None:
    lines = said(BUNDLED_MODEL)
    assert lines["call format"] == "hermes, inline (guessed from the chat template)"
    assert lines["thinking"].startswith("no markers of thinking")
    assert lines["chat template"].endswith(" characters")


def test_a_template_that_fits_nothing(model: Path) -> None:
    lines = said(model)
    assert "fits no known format" in lines["call format"]
    assert "--format: hermes, " in lines["call format"]
    assert lines["thinking"].startswith("<think> ... </think> (guessed")
    assert "may be qwen3, guessed" in lines["thinking"]


@pytest.mark.parametrize(
    ("template", "messages", "pictures"),
    [
        ("qwen3", "each text arrives as it is sent, in its role", "become a sentence"),
        (
            "qwen3_5_think",
            "some are written otherwise than they are sent: several system messages become one; a"
            " later system message becomes the user's, in its place",
            "in tools' results too",
        ),
        ("llama3_1", "turns of one call each; a text beside a call becomes an", "a sentence"),
        ("mistral_small_3_2", "; a text beside a call is lost", "are shown behind them"),
    ],
)
def test_what_becomes_of_messages(model: Path, template: str, messages: str, pictures: str) -> None:
    """From the tokenizer's files alone: there is neither an engine nor a weight."""
    shutil.copy(TEMPLATES / f"{template}.jinja", model / "chat_template.jinja")
    lines = said(model)
    assert messages in lines["messages"]
    assert pictures in lines["pictures"]


def test_a_named_format(model: Path) -> None:
    assert said(model, ["apertus"])["call format"] == "vllm:apertus (as named)"
    told = said(model, ["vllm:jamba"])["call format"]
    assert told.startswith("wrong: vllm:jamba: vLLM's tool parser 'jamba' does not fit the model")
    assert said(model, ["xml"])["model"].startswith("wrong: unknown call format 'xml'")


def test_a_model_without_a_template(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    config = model / "tokenizer_config.json"
    kept = json.loads(config.read_text())
    kept.pop("chat_template", None)
    config.write_text(json.dumps(kept))
    lines = said(model)
    assert "has none, so messages cannot be rendered" in lines["chat template"]
    assert "messages" not in lines


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    (line,) = said(tmp_path).values()
    assert line.startswith(f"wrong: {tmp_path} holds no model: config.json is missing; name")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (line,) = said(tmp_path).values()
    assert "no file of a tokenizer is there; fetch or save it too" in line
