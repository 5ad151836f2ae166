"""Encoders with heads: small ones, and those that transformers loads from a directory."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from caesura.scheduler.prompt_lengths.encoder import Encoder
from caesura.scheduler.prompt_lengths.predictor import load_predictor, train_predictor, width_of
from caesura.scheduler.prompt_lengths.training import Plan
from tests.prompt_lengths.prompts import WORDS, told

PROMPTS = [f"please write a {word} about cats" for word in WORDS]


def tokenizer(cls: bool) -> PreTrainedTokenizerFast:
    words = ["[PAD]", "[UNK]", "[CLS]", "please", "write", "a", "about", "thing", *WORDS]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    if cls:
        inner.post_processor = processors.TemplateProcessing(
            "[CLS] $A", special_tokens=[("[CLS]", 2)]
        )
        special["cls_token"] = "[CLS]"
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special)


def bert(folder: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=32, intermediate_size=16, **sizes)).save_pretrained(folder)
    tokenizer(cls=True).save_pretrained(folder)


def opt(folder: Path) -> None:
    config = OPTConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
        pad_token_id=0,
    )
    OPTForCausalLM(config).save_pretrained(folder)
    tokenizer(cls=False).save_pretrained(folder)


@pytest.mark.parametrize(
    ("make", "pool", "objective"), [(bert, "cls", "l1"), (opt, "last", "bins")]
)
def test_a_model_of_a_directory_learns_and_is_loaded(
    tmp_path: Path, make: object, pool: str, objective: str
) -> None:
    make(tmp_path / "model")  # type: ignore[operator]
    rows = told(150)
    learner = Encoder.of(tmp_path / "model", width_of(objective, rows), 2, None, seed=0)
    assert learner.form.pool == pool
    plan = Plan(epochs=8, head_epochs=2, rate=0.01, batch=16, patience=8)
    predictor = train_predictor(learner, objective, rows, plan)
    assert predictor.description.scores["pairs"] > 0.7
    predictor.save(tmp_path / "out")
    again = load_predictor(tmp_path / "out")
    assert again.predict(PROMPTS).quantiles == pytest.approx(predictor.predict(PROMPTS).quantiles)


def test_a_long_prompt_keeps_its_end(tmp_path: Path) -> None:
    opt(tmp_path)
    learner = Encoder.of(tmp_path, 1, 1, None, seed=0)
    ids = learner.prepare("a " * 300 + "story")
    assert len(ids) == 64 and ids[-1] == learner.prepare("story")[-1]


def test_a_small_encoder_learns_from_nothing(tmp_path: Path) -> None:
    rows = told(150)
    learner = Encoder.small(1, layers=1, hidden=32)
    predictor = train_predictor(learner, "listmle", rows, Plan(epochs=5, rate=3e-3))
    assert predictor.description.scores["pairs"] > 0.7
    predictor.save(tmp_path)
    again = load_predictor(tmp_path)
    assert again.predict(PROMPTS).tokens == pytest.approx(predictor.predict(PROMPTS).tokens)
    held = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"please" not in held


def test_padding_changes_nothing() -> None:
    learner = Encoder.small(2, layers=1, hidden=32)
    short, long = learner.prepare("a story"), learner.prepare("one two three four five six")
    together = learner.outputs([short, long])
    assert together[0] == pytest.approx(learner.outputs([short])[0], abs=1e-5)


def test_a_frozen_model_learns_its_head_only() -> None:
    learner = Encoder.small(1, layers=1, hidden=32)
    learner.freeze()
    body, head = learner.state()
    learner.learn([[1, 2]], lambda outputs: (0.0, np.ones_like(outputs)), 0.1)
    later_body, later_head = learner.state()
    assert all(bool((body[name] == later_body[name]).all()) for name in body)
    assert any(bool((head[name] != later_head[name]).any()) for name in head)
