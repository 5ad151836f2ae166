"""The added heads compare four tokens: a repeated part of a number does not mislead them."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import deep  # noqa: E402
import grow  # noqa: E402
import start  # noqa: E402
import train  # noqa: E402

# After "4 5 6" comes 7 the first time and 8 the second time: three tokens do not tell which.
NUMBER = [20, 31, 4, 5, 6, 7, 52, 33, 44, 4, 5, 6, 8, 61, 75]
BETWEEN = [90, 91, 92, 93, 94, 95]


def fresh():
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(train.config(1024)).eval()
    start.prepare(model)
    generator = torch.Generator().manual_seed(1)
    texts = [f"token {number}" for number in range(1024)]
    deep.write(model, texts, torch.randint(7, 1024, (1, 300), generator=generator), 0.5)
    return model


def test_the_first_codes_are_far_apart():
    codes = deep.codes([f"token {number}" for number in range(200)])
    assert torch.allclose(codes.norm(dim=1), torch.ones(200), atol=1e-5)
    alike = codes @ codes.T - torch.eye(200)
    assert alike[:40, :40].max() < 0.75


def test_a_token_has_the_code_that_it_has_behind_a_space():
    codes = deep.codes(["a", "Ġa", "b", "Ġ", "Ġc", "c"])
    assert torch.equal(codes[0], codes[1])
    assert torch.equal(codes[4], codes[5])
    assert not torch.equal(codes[0], codes[2])


def test_a_head_looks_behind_the_four_tokens_that_came_last():
    model = fresh()
    model.set_attn_implementation("eager")
    ids = [*NUMBER, *BETWEEN, *NUMBER]
    with torch.inference_mode():
        seen = model(torch.tensor([ids]), output_attentions=True).attentions[2][0, 4]
    apart = len(NUMBER) + len(BETWEEN)
    for place in range(4, len(NUMBER) - 1):
        assert seen[apart + place].argmax().item() == place + 1


def test_a_grown_model_answers_as_the_old_one_where_nothing_is_copied():
    torch.manual_seed(2)
    small = train.config(64)
    small.hidden_size, small.num_attention_heads, small.num_key_value_heads = 256, 4, 4
    old = transformers.LlamaForCausalLM(small).eval()
    new = grow.widened(old, 64).eval()
    ids = torch.randint(0, 64, (1, 40))
    with torch.inference_mode():
        assert torch.allclose(new(ids).logits, old(ids).logits, atol=1e-3)


def test_a_new_token_begins_as_the_one_behind_a_space_and_shares_its_code():
    texts = ["a", "Ġa", "b", "Ġb", "Ġc", "c"]
    table = torch.randn(6, train.config(6).hidden_size)
    table[5] = 0
    grow.fill(table, texts, 5)
    difference = ((table[0] - table[1]) + (table[2] - table[3]))[: deep.FIRST] / 2
    assert torch.allclose(table[5, : deep.FIRST], table[4, : deep.FIRST] + difference, atol=1e-5)
    for plain, spaced in ((0, 1), (2, 3), (5, 4)):
        assert torch.equal(table[plain, deep.FIRST :], table[spaced, deep.FIRST :])
