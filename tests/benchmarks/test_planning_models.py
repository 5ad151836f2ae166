"""The small models of the planning benchmark have the output lengths that their files say."""

import json
from pathlib import Path

import pytest

from benchmarks.machine import number_type
from benchmarks.planning.models import END, LENGTHS, SIZES, geometric, make_model
from caesura.planning.costs.lengths import read_lengths


def test_lengths_have_the_mean_that_is_asked_for() -> None:
    pairs = geometric(60)
    assert sum(share for _, share in pairs) == pytest.approx(1)
    assert sum(length * share for length, share in pairs) == pytest.approx(60, rel=1e-3)


@pytest.mark.slow
def test_every_token_ends_the_output_with_the_same_probability(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    size = SIZES[0]
    directory = make_model(size, tmp_path)
    assert json.loads((directory / "config.json").read_text())["dtype"] == number_type()
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokens = torch.arange(7, 1007).reshape(10, 100)
    with torch.no_grad():
        ends = model(tokens).logits.float().softmax(-1)[..., END]
    assert 1 / ends.mean().item() == pytest.approx(size.mean_tokens, rel=0.1)
    assert ends.max() < 3 * ends.min()
    read_lengths(directory / LENGTHS)
