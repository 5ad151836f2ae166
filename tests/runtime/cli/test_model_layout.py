"""What `caesura doctor --model` says of a model's KV cache, from its configuration alone."""

from pathlib import Path

import pytest
import transformers
from vllm.platforms import current_platform

from caesura.runtime.cli.doctor import layout_checks, layout_lines
from caesura.runtime.cli.errors import Complaint
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.model_facts import GroupFacts, LayoutFacts
from tests.engine.families import FAMILIES, USUAL, WINDOW

pytestmark = pytest.mark.skipif(not current_platform.is_cpu(), reason="sizes are those of CPUs")


def said(model: str | Path) -> dict[str, str]:
    """What each check says; a complaint begins with `wrong:`."""
    lines = {}
    for name, check in layout_checks(str(model)):
        try:
            lines[name] = check()
        except Complaint as complaint:
            lines[name] = f"wrong: {complaint}"
    return lines


def folder_of(name: str, place: Path) -> Path:
    """Return a folder with nothing but the configuration of a family's tiny model."""
    family = FAMILIES[name]
    usual = dict(USUAL)
    if "kv_lora_rank" in family.options:
        del usual["head_dim"]
    config = getattr(transformers, family.config)(**{**usual, **family.options})
    config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
    config.save_pretrained(place)
    assert [path.name for path in place.glob("*")] == ["config.json"]
    return place


def test_the_bundled_model() -> None:
    lines = said(BUNDLED_MODEL)
    # Keys and values of 6 heads of 64 numbers, of 2 bytes, in 4 layers.
    size = 2 * 6 * 64 * 2 * 4
    assert lines["KV group 1"] == f"full, 4 layers, blocks of 32 tokens, {size:,} bytes per token"
    assert lines["kept over a pause"] == lines["swapped"] == lines["kept for follow-ups"] == "yes"
    assert "block by block" in lines["recomputed"]


@pytest.mark.parametrize("name", ["gpt-oss", "Gemma 3", "Qwen3-Next", "Granite 4", "DeepSeek V3"])
def test_a_configuration_is_enough(name: str, tmp_path: Path) -> None:
    lines, family = said(folder_of(name, tmp_path)), FAMILIES[name]
    groups = [text for title, text in lines.items() if title.startswith("KV group")]
    assert {text.partition(",")[0] for text in groups} == set(family.groups)
    for text in groups:
        assert (f"of the last {WINDOW} tokens" in text) == text.startswith("window")
        assert ("bytes per request" in text) == text.startswith("state")
    assert lines["kept over a pause"] == "yes"
    assert ("all at once" in lines["recomputed"]) == (not family.alone or name == "DeepSeek V3")


def test_what_vllm_cannot_build_here(tmp_path: Path) -> None:
    lines = said(folder_of("DeepSeek V3.2", tmp_path))
    assert list(lines) == ["KV cache"]
    assert lines["KV cache"].startswith("2 layers")
    assert "Sparse Attention is not supported on CPU" in lines["KV cache"]


def test_a_wrong_name(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert said(absent) == {
        "KV cache": f"wrong: there is no model directory {absent}; check the path"
    }
    assert said(tmp_path)["KV cache"].startswith(
        f"wrong: {tmp_path} holds no model: config.json is missing"
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ('{"hidden_size": 4,', "{path} is not valid JSON (Expecting property name"),
        ("[1]", "{path} holds a JSON list and no object"),
        ('{"hidden_size": 4}', "vLLM cannot serve '{folder}': Unrecognized model in {folder}."),
        (
            '{"model_type": "weird"}',
            "vLLM cannot serve '{folder}': The checkpoint you are trying to load has model type"
            " `weird` but Transformers does not recognize",
        ),
        (
            '{"model_type": "llama", "architectures": ["WeirdForCausalLM"]}',
            "vLLM cannot serve '{folder}': Model architectures ['WeirdForCausalLM'] are not"
            " supported for now.",
        ),
    ],
)
def test_a_folder_that_is_no_model(config: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    (line,) = said(tmp_path).values()
    assert line.startswith("wrong: " + told.format(path=path, folder=tmp_path))
    assert "pydantic" not in line
    assert len(line) < 600
    assert "\n" not in line


def test_each_reason_is_said() -> None:
    groups = (GroupFacts("RSWASpec", 2, 16, 64, 0, 0),)
    layout = LayoutFacts(groups, "D", "A", "F", "S")
    lines = dict(layout_lines(layout))
    assert lines["kept over a pause"] == "no, but discarded: D"
    assert lines["swapped"] == "no: S"
    assert lines["kept for follow-ups"] == "no: F"
    assert "at each pause" in lines["recomputed"]
