"""How many characters a token may stand for, and texts that are refused by it."""

import random
import unicodedata
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.errors import ContextOverflow
from caesura.scheduler.vllm.client.rendering.render import Continuation, Renderer
from caesura.scheduler.vllm.client.rendering.tokens import NFC_CHARACTERS, max_characters_per_token
from tests.formats.world import byte_characters

BYTES = {text: number for number, text in enumerate([*byte_characters(), "Ġhello", "12345678"])}
PIECES = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "▁hello": 257}


@pytest.fixture(scope="module")
def bundled() -> Any:
    return AutoTokenizer.from_pretrained(BUNDLED_MODEL)


def made(
    vocabulary: dict[str, int],
    *,
    pre: Any = None,
    normalizer: Any = None,
    added: Any = (),
    **model: Any,
) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], **model))
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def test_the_longest_token_is_the_bound(bundled: Any) -> None:
    assert max_characters_per_token(bundled) == len("</tool_response>")
    assert max_characters_per_token(made(BYTES, pre=byte_level())) == len("12345678")
    pieces = made(
        PIECES,
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        byte_fallback=True,
    )
    assert max_characters_per_token(pieces) == len("▁hello")


def test_nfc_makes_one_of_four_characters_at_most() -> None:
    longest = max(len(unicodedata.normalize("NFD", chr(code))) for code in range(0x110000))
    assert longest == NFC_CHARACTERS
    composing = made(BYTES, pre=byte_level(), normalizer=normalizers.NFC())
    assert max_characters_per_token(composing) == NFC_CHARACTERS * len("12345678")


@pytest.mark.parametrize(
    "tokenizer",
    [
        made(BYTES, pre=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), byte_level()])),
        made(BYTES, pre=pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "removed"), byte_level()])),
        made(BYTES, pre=byte_level(), normalizer=normalizers.Strip()),
        made(BYTES, pre=byte_level(), normalizer=normalizers.NFKC()),
        made(BYTES, pre=byte_level(), normalizer=normalizers.Replace(" ", "")),
        made(BYTES, pre=byte_level(), added=[AddedToken("<|user|>", rstrip=True)]),
        made({"a": 0}, pre=byte_level()),
        made({"a": 0, "<unk>": 1}, unk_token="<unk>", fuse_unk=True),
        made({"a": 0}, byte_fallback=True),
        object(),
    ],
    ids=["white space", "split", "strip", "nfkc", "replace", "rstrip", "bytes", "unk", "fallback",
         "slow"],
)  # fmt: skip
def test_nothing_is_said_of_tokenizers_that_drop_characters(tokenizer: Any) -> None:
    assert max_characters_per_token(tokenizer) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_text_has_more_characters_than_its_tokens_allow(bundled: Any, seed: int) -> None:
    draw = random.Random(seed)
    alphabets = ["ab ", " \n\t", "hello 48*17=", "é漢字🙂\u0301\u0338", "</tool_response>"]
    text = "".join(draw.choices(draw.choice(alphabets), k=draw.randrange(1, 400)))
    text += "</tool_response>" * draw.randrange(20)
    composing = made(BYTES, pre=byte_level(), normalizer=normalizers.NFC())
    for tokenizer in (bundled, composing):
        per_token = max_characters_per_token(tokenizer)
        assert per_token is not None
        assert len(text) <= per_token * len(tokenizer.encode(text, add_special_tokens=False))


def test_a_text_beyond_the_window_is_refused_without_being_tokenised(
    bundled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = Renderer(bundled, frozenset({bundled.eos_token_id}), context_tokens=100)
    encoded: list[str] = []
    monkeypatch.setattr(bundled, "encode", lambda text, **_: encoded.append(text) or [])
    renderer.prompt([{"role": "user", "content": "x" * 1000}], ())
    assert len(encoded) == 1
    with pytest.raises(ContextOverflow, match=r"is 100 tokens, which hold 1600 .* has 17\d\d"):
        renderer.prompt([{"role": "user", "content": "x" * 1700}], ())
    turn = {"role": "assistant", "content": "Hm."}
    with pytest.raises(ContextOverflow, match="characters"):
        renderer.bridge(
            Continuation(turn, [{"role": "user", "content": "x" * 1700}], (), bundled.eos_token_id)
        )
    assert len(encoded) == 1


def test_a_text_that_fills_the_window_is_not_refused(bundled: Any) -> None:
    ends = frozenset({bundled.eos_token_id})
    renderer = Renderer(bundled, ends, context_tokens=100, literal=False)
    text = "</tool_response>" * 90
    tokens = renderer.prompt([{"role": "user", "content": text}], ())
    assert len(tokens) <= 100
