"""Greedy decoding in reserved buffers writes what transformers' own loop writes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from decode import greedy  # noqa: E402

PAD, END = 0, 2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=12, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, initializer_range=0.5, pad_token_id=PAD, eos_token_id=END,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


PROMPTS = [[5, 6, 7, 8, 9], [4, 3], [11, 10, 9, 8, 7, 6, 5], [3, 3, 3]]


def test_each_row_is_what_transformers_writes_for_it_alone(model):
    written = greedy(model, PROMPTS, PAD, [[END]], 30)
    for prompt, row in zip(PROMPTS, written, strict=True):
        alone = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False)
        assert row == alone[0, len(prompt) :].tolist()


def test_a_row_ends_with_a_stop_sequence_and_the_others_go_on(model):
    free = greedy(model, PROMPTS, PAD, [], 12)
    stop = free[0][2:4]
    written = greedy(model, PROMPTS, PAD, [stop], 12)
    assert written[0] == free[0][:4]
    for row, whole in zip(written, free, strict=True):
        assert row == whole[: len(row)]
        assert len(row) == 12 or row[-2:] == stop
