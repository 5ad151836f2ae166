"""The pieces of the training loop: batches, labels, rates, and weights that copy from the start."""

import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attention  # noqa: E402
import start  # noqa: E402
import train  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def tokens():
    return Tokenizer.from_file(str(train.MODEL / "tokenizer.json"))


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(train, "POOL", 3)


def test_the_same_seed_gives_the_same_batches(tokens, small_pool):
    first = train.pool(tokens, 4, "seed", frozenset())
    again = train.pool(tokens, 4, "seed", frozenset())
    assert len(first) == 3
    for (ids, labels), (same_ids, same_labels) in zip(first, again, strict=True):
        assert torch.equal(ids, same_ids)
        assert torch.equal(labels, same_labels)


def test_a_resumed_stream_goes_on_where_it_stopped(tokens, small_pool):
    whole = train.batches(tokens, 4, 0, 0, frozenset())
    for _ in range(4):
        next(whole)
    resumed = train.batches(tokens, 4, 0, 4, frozenset())
    assert torch.equal(next(whole)[0], next(resumed)[0])


def test_loss_is_taken_on_what_the_assistant_writes(tokens, small_pool):
    for ids, labels in train.pool(tokens, 4, "labels", frozenset()):
        kept = labels != train.IGNORED
        assert kept.any(dim=1).all()
        assert torch.equal(ids[kept], labels[kept])
        written = tokens.decode(ids[0][kept[0]].tolist(), skip_special_tokens=False)
        assert written.endswith("<|im_end|>")
        assert "<|im_start|>" not in written
        assert "<tool_response>" not in written


def test_the_rate_rises_and_falls():
    rates = [train.rate_at(step, 1000, 1.0) for step in range(1000)]
    assert rates[0] < 0.1
    assert max(rates) == 1.0
    assert rates[-1] < 0.03


def test_given_minutes_the_rate_follows_the_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr(train.time, "monotonic", lambda: now)
    clock = train.Clock(steps=1000, minutes=10, used_seconds=60)
    assert clock.place(7) == 100
    now += 240
    assert clock.place(7) == 500
    assert clock.place(600) == 600
    assert train.Clock(steps=1000, minutes=None).place(7) == 7


@pytest.mark.parametrize("tokens", [5, 128, 300])
def test_attention_in_blocks_is_attention(tokens):
    torch.manual_seed(0)
    shape = (2, 3, tokens, 16)
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    expected = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    result, _ = attention.blocks(torch.nn.Module(), *inputs, scaling=16**-0.5)
    assert torch.allclose(result.transpose(1, 2), expected, atol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(result.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-4)


def test_a_batch_in_parts_has_the_gradients_of_the_whole(tokens, small_pool):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(train.config(tokens.get_vocab_size()))
    ids, labels = min(
        train.pool(tokens, 6, "parts", frozenset()), key=lambda batch: batch[0].numel()
    )
    whole = train.loss_of(model, ids, labels)
    whole.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    assert train.learn(model, ids, labels) == pytest.approx(whole.item(), rel=1e-3)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert (parameter.grad - gradient).norm() < 0.05 * gradient.norm()


def test_every_weight_is_trained():
    model = transformers.LlamaForCausalLM(train.config(64))
    taken = [
        id(p)
        for optimizer in train.optimizers_of(model, 1e-3)
        for group in optimizer.param_groups
        for p in group["params"]
    ]
    assert sorted(taken) == sorted(id(p) for p in model.parameters())


def test_fresh_weights_copy_what_stood_before():
    """Without any training, the token after a repeated one is mostly predicted right."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(train.config(1024)).eval()
    start.prepare(model)
    rng = random.Random(0)
    text = [rng.randrange(7, 1024) for _ in range(20)]
    between = [rng.randrange(7, 1024) for _ in range(10)]
    with torch.inference_mode():
        guessed = model(torch.tensor([text + between + text])).logits[0].argmax(-1).tolist()
    copied = guessed[len(text) + len(between) : -1]
    right = sum(guess == token for guess, token in zip(copied, text[1:], strict=True))
    assert right >= 14
