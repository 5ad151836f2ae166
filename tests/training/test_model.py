"""The committed model loads with transformers, keeps its tokens apart and answers questions."""

import os
import random

import pytest
import segments
from tasks.conversation import conversation
from tasks.exchange import Call, Exchange
from tasks.toolset import BUILT_IN, known, tool
from tasks.words import made_up
from tokenizer import SPACE, bare

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from heldout import Scenario  # noqa: E402
from tasks.conversation import Conversation  # noqa: E402
from train import MODEL, config  # noqa: E402

CALCULATOR = tool("calculator", {"expression": "string"}, "Evaluate arithmetic.")
PRICE = tool("price", {"item": "string"}, "The price of an item.")


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def player():
    from evaluate import load

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(MODEL)
    torch.set_num_threads(threads)


def test_the_directory_is_small_and_complete():
    names = {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "README.md",
    }  # fmt: skip
    assert names == {path.name for path in MODEL.iterdir()}
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 12_000_000
    assert (MODEL / "chat_template.jinja").read_text() == segments.TEMPLATE.read_text()
    assert all(os.access(path, os.R_OK) for path in MODEL.iterdir())


def test_the_shape_is_the_one_that_training_gives(tokenizer):
    saved = transformers.AutoConfig.from_pretrained(MODEL)
    fresh = config(len(tokenizer))
    assert saved.architectures == ["LlamaForCausalLM"]
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "head_dim", "eos_token_id"):
        assert getattr(saved, name) == getattr(fresh, name)
    assert saved.max_position_embeddings == 2048


def test_special_tokens(tokenizer):
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"
    assert tokenizer.bos_token is None
    ids = tokenizer("<tool_call>a</tool_call><tool_response><|im_end|>")["input_ids"]
    assert len(ids) == 5
    kept = tokenizer.decode(ids, skip_special_tokens=True)
    assert kept == "<tool_call>a</tool_call><tool_response>"


@pytest.mark.parametrize(
    "text", ["12 * 7", " 84]", "é 漢字 🙂\t\n\n  x", '{"a": "b"}', "1-2 ->) ->", ""]
)
def test_text_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_digits_stand_alone_and_the_pause_is_a_token_of_its_own(tokenizer):
    assert len(tokenizer.tokenize("123456")) == 6
    end = tokenizer(segments.INLINE_END)["input_ids"]
    whole = tokenizer("hold [calculator(12*7) -> 84] 84 eggs.")["input_ids"]
    assert any(whole[at : at + len(end)] == end for at in range(len(whole)))


def test_a_word_is_cut_alike_behind_a_space_and_before_an_s(tokenizer):
    rng = random.Random(4)
    same = 0
    for _ in range(300):
        word = made_up(rng)
        plain, spaced, plural = (
            [t for t in map(bare, tokenizer.tokenize(text)) if t != SPACE]
            for text in (word, f" {word}", f"{word}s")
        )
        assert plain == spaced
        same += plain[:-1] == plural[: len(plain) - 1]
    assert same > 290


def test_pieces_encode_as_the_whole_does(tokenizer):
    """A prompt that holds an earlier answer has the tokens that the model wrote."""

    def encode(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    for seed in range(60):
        pieces = segments.conversation_segments(conversation(random.Random(seed)))
        ids, learned = segments.encode(pieces, encode)
        assert ids == encode("".join(piece.text for piece in pieces))
        assert any(learned)
        assert not learned[0]


def test_the_template_renders_the_same_in_transformers(tokenizer):
    messages = [{"role": "user", "content": "What is 12*7?"}]
    text = tokenizer.apply_chat_template(
        messages, tools=[CALCULATOR], add_generation_prompt=True, tokenize=False
    )
    assert text == segments.prompt(None, [CALCULATOR], "What is 12*7?")


def sum_of(expression, result):
    return Call("calculator", {"expression": expression}, result)


EXCHANGES = [
    Exchange("one", "What is 12*7?", ("",), ((sum_of("12*7", "84"),),), ("84",)),
    Exchange(
        "chain",
        "How much do 7 lamps cost?",
        ("",),
        ((Call("price", {"item": "lamp"}, "12"),), (sum_of("7*12", "84"),)),
        ("84",),
    ),
    Exchange(
        "inline",
        "Write a sentence about 12 boxes of 7 eggs.",
        ("", sum_of("12*7", "84"), ""),
        (),
        ("84",),
    ),
]
PICTURE = "/artifacts/3f2a9bc04d5e6f7a8b9c0d1e.png"
SOUND = "/artifacts/9c1d4e70ab25f8036b7e1d4a.wav"
ROWS = [{"name": "oak", "value": 12}, {"name": "pine", "value": 7}, {"name": "birch", "value": 9}]
CIRCLE = "<svg width='200' height='200'><circle cx='100' cy='100' r='80' fill='red'/></svg>"


def one(user, name, arguments, result, value):
    return Exchange(name, user, ("",), ((Call(name, arguments, result),),), (value,))


TOOLS = [
    one(
        "Draw a bar chart of oak 12, pine 7 and birch 9.",
        "render_chart",
        {"spec": {"mark": "bar", "data": {"values": ROWS}}},
        f"Saved as {PICTURE}: PNG picture, 640 x 400.",
        PICTURE,
    ),
    one(
        "Draw a red circle.",
        "render_svg",
        {"svg": CIRCLE},
        f"Saved as {PICTURE}: PNG picture, 200 x 200.",
        PICTURE,
    ),
    one(
        "Make a picture of a fox in the snow.",
        "generate_image",
        {"prompt": "a fox in the snow"},
        f"Saved as {PICTURE}: PNG picture, 512 x 512.",
        PICTURE,
    ),
    one(
        "Say 'good morning' aloud.",
        "speak",
        {"text": "good morning"},
        f"Saved as {SOUND}: WAV sound, 2.3 s.",
        SOUND,
    ),
    one(
        "Ask the user what colour they like.",
        "ask_user",
        {"question": "What colour do you like?"},
        "blue",
        "blue",
    ),
    one(
        "Who is the mayor of Oslo?",
        "search",
        {"query": "mayor Oslo"},
        "[1] Oslo (guide.md)\nThe mayor of Oslo is Anna Berg.",
        "Anna Berg",
    ),
    one(
        "Start a new game.",
        "environment",
        {"action": "reset"},
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, and a"
        " shelf 2.\nYour task is to: put some mug on shelf.\n"
        "You can: go to desk 1, go to shelf 2, inventory, look",
        "put some mug on shelf",
    ),
]


def test_the_model_answers(player):
    """Three questions as one batch: a call, a chain of calls, a call in mid sentence."""
    asked = [Scenario(Conversation(None, [CALCULATOR, PRICE], [e]), e) for e in EXCHANGES]
    for game in player.play(asked):
        assert game.right, (game.steps, game.inline, game.text)


def test_the_model_uses_the_other_built_in_tools(player):
    """One question for each, with its tool and one other listed."""
    definitions = {name: known(random.Random(1), name) for name in BUILT_IN}
    asked = [Scenario(Conversation(None, [CALCULATOR, definitions[e.task]], [e]), e) for e in TOOLS]
    for game in player.play(asked):
        assert game.right, (game.steps, game.text)
