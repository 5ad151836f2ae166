"""Texts as tokens, and tokens as text, by the model's tokenizer.

What users, tools and clients write is encoded so that it holds no special tokens (`LiteralText`).
A tokenizer turns the spelling of a special token into that token wherever it stands. A tool's
result that spells `<|im_end|>` would so end its message and begin another one. Here a random text,
the cut, is put behind the first character of each such spelling before the chat template renders
it. In the rendered text an unused special token replaces each cut, and its id is removed from the
tokens. The cut spelling is then encoded like any other text, and nothing else changes.

The option `split_special_tokens` of transformers is not used: it splits all special tokens, those
of the template too, it leaves added tokens such as Qwen's `<tool_call>`, and it is a state of the
tokenizer, which threads share.

Tokenising takes seconds per megabyte. A text with more characters than the context window's
tokens could hold is refused without tokenising (`max_characters_per_token`).

Decoded tokens become text by their bytes (`TokenText`), or as vLLM would write them behind the
tokens of an earlier request (`ReplayedText`).
"""

import codecs
import json
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.thinking import REGIONS
from caesura.intercept.calls.vocabulary import Vocabulary

_CUT = uuid.uuid4().hex
"""A text that no message holds by accident, and that survives being written as JSON."""
_THINKING = frozenset((*REGIONS, *REGIONS.values()))
MIN_CHARACTERS = 2
"""A spelling is cut in two, so shorter tokens cannot be kept out."""


class LiteralText:
    """Cuts and encodes the spellings of one tokenizer's special tokens; callable from any thread.

    Tokenizers without a list of added tokens are left alone. Mistral's own are among them, and
    never encode a text as special tokens.
    """

    def __init__(self, tokenizer: Any, template: str, enabled: bool = True) -> None:
        """Create it for a tokenizer and a chat template; unless `enabled`, nothing is cut."""
        self._tokenizer = tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {}) if enabled else {}
        texts = _structural(added.values(), template)
        self._pattern = _pattern(texts)
        self._in_answers = _pattern(texts - _THINKING)
        self._ids = {token_id for token_id, token in added.items() if token.content in texts}
        self._anchors = [*_anchors(tokenizer, added, texts)] if texts else []
        if not self._anchors:
            self._pattern = self._in_answers = None

    def cut(self, value: Any, *, answer: bool = False) -> Any:
        """Return JSON-able data with a cut in each spelling, in keys too.

        In an `answer` of the model the markers of thinking stay, because templates parse them.
        """
        pattern = self._in_answers if answer else self._pattern
        return value if pattern is None else _cut(value, pattern)

    def count(self, value: Any, *, answer: bool = False) -> int:
        """Return the number of spellings that `cut` finds in the data."""
        pattern = self._in_answers if answer else self._pattern
        return 0 if pattern is None else sum(len(pattern.findall(text)) for text in _texts(value))

    def length(self, text: str) -> int:
        """Return the number of characters of a text without its cuts."""
        return len(text) - text.count(_CUT) * len(_CUT)

    def is_cut(self, text: str) -> bool:
        """Return whether a rendered text holds a cut."""
        return _CUT in text

    def specials(self, tokens: Iterable[int]) -> Counter[int]:
        """Return how often each token that texts may not form stands among the tokens."""
        return Counter(token for token in tokens if token in self._ids)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens added and without its cuts."""
        if _CUT not in text:
            return self._encode(text)
        unused = (each for each in self._anchors if each not in text)
        anchor = next(unused, self._anchors[0])
        (anchor_id,) = self._encode(anchor)
        found = re.findall(f"{_CUT}|{re.escape(anchor)}", text)
        is_cut = iter([each == _CUT for each in found])
        tokens = self._encode(text.replace(_CUT, anchor))
        if tokens.count(anchor_id) != len(found):
            # The tokenizer reads the anchor differently beside this text, so it is not used.
            return [token for part in text.split(_CUT) for token in self._encode(part)]
        return [token for token in tokens if token != anchor_id or not next(is_cut)]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _structural(added: Iterable[Any], template: str) -> frozenset[str]:
    """Return the texts of tokens that shape a conversation, or are special for another reason.

    Some tokenizers also add tokens for ordinary text, such as runs of spaces; these stay whole.
    """
    markers = _markers()
    texts: set[str] = set()
    for token in added:
        text = token.content
        if len(text) < MIN_CHARACTERS or not text.strip():
            continue
        written = text in template and not text.strip().isalnum()
        if token.special or written or text in markers:
            texts.add(text)
    return frozenset(texts)


def _markers() -> frozenset[str]:
    """Return the markers of thinking and of calls in all formats."""
    rows = TURN_FORMATS.values()
    calls = {text for row in rows for text in (*row.opens, row.closes, *row.section) if text}
    return _THINKING | calls


def _pattern(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern for the first characters of the texts, where the rest follows."""
    rests: dict[str, list[str]] = {}
    for text in sorted(texts):
        rests.setdefault(text[0], []).append(re.escape(text[1:]))
    parts = (f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items())
    return re.compile("|".join(parts)) if rests else None


def _anchors(tokenizer: Any, added: Mapping[int, Any], texts: Collection[str]) -> Iterator[str]:
    """Yield special tokens that are read the same beside any text."""
    for token_id, token in added.items():
        text = token.content
        strips = token.lstrip or token.rstrip or token.single_word
        if text not in texts or strips or any(text in each for each in texts if each != text):
            continue
        if list(tokenizer.encode(text, add_special_tokens=False)) == [token_id]:
            yield text


def _cut(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(rf"\g<0>{_CUT}", value)
    if isinstance(value, Mapping):
        return {_cut(key, pattern): _cut(each, pattern) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(each, pattern) for each in value]
    return value


def _texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            left += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            left += item


class TokenText:
    """Decodes the tokens of one turn; a character may be spread over several tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text of further tokens, up to the last complete character."""
        return self._decoder.decode(b"".join(map(self._vocabulary.bytes_of, token_ids)))


class ReplayedText:
    """Decodes the tokens of one turn as vLLM does, by its own decoder."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int], params: SamplingParams) -> None:
        """Create it for a turn behind `prompt`; `params` say whether special tokens are shown."""
        request = EngineCoreRequest(
            request_id="text",
            prompt_token_ids=list(prompt),
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._decoder = IncrementalDetokenizer.from_new_request(tokenizer, request)

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text of further tokens, up to the last complete character."""
        self._decoder.update(list(token_ids), False)
        return self._decoder.get_next_output_text(False, True)


NFC_CHARACTERS = 4
"""Maximum number of characters that NFC composes into one (Unicode's longest decomposition)."""
_KEEPING = {"ByteLevel", "Digits", "Metaspace"}
"""Pre-tokenizers of the library `tokenizers` that keep every character."""


def max_characters_per_token(tokenizer: Any) -> int | None:
    """Return the maximum number of characters that one token of `tokenizer` stands for.

    Return None if that is unknown. The tokenizer is then not a fast one of `transformers`, or it
    drops or merges characters, such as white space around a special token.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    spec = json.loads(backend.to_str())
    vocabulary = tokenizer.get_vocab()
    normalized = _characters_normalized_to_one(spec["normalizer"])
    strips = any(token["lstrip"] or token["rstrip"] for token in spec["added_tokens"])
    if normalized is None or strips or not _keeps_characters(spec, vocabulary):
        return None
    # In a byte-level vocabulary a token has a character per byte, so its length is an upper bound.
    return max(map(len, vocabulary)) * normalized


def _keeps_characters(spec: Mapping[str, Any], vocabulary: Collection[str]) -> bool:
    """Return whether each character of a text becomes a token or a part of one."""
    steps = _flat(spec["pre_tokenizer"], "pretokenizers")
    if spec["model"]["type"] != "BPE":
        return False
    if not all(
        step["type"] in _KEEPING or (step["type"] == "Split" and step["behavior"] != "Removed")
        for step in steps
    ):
        return False
    if any(step["type"] == "ByteLevel" for step in steps):
        return _byte_characters() <= set(vocabulary)
    bytes_as_tokens = {f"<0x{byte:02X}>" for byte in range(256)}
    return bool(spec["model"]["byte_fallback"]) and bytes_as_tokens <= set(vocabulary)


def _characters_normalized_to_one(normalizer: Mapping[str, Any] | None) -> int | None:
    """Return how many characters the normalizer merges into one at most; None if unknown."""
    most = 1
    for step in _flat(normalizer, "normalizers"):
        match step:
            case {"type": "Prepend"}:
                pass
            case {"type": "NFC"}:
                most *= NFC_CHARACTERS
            case {"type": "Replace", "pattern": {"String": old}, "content": new} if new:
                most *= -(-len(old) // len(new))
            case _:
                return None
    return most


def _flat(step: Mapping[str, Any] | None, parts: str) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [each for part in step[parts] for each in _flat(part, parts)]


def _byte_characters() -> set[str]:
    """Return the 256 characters that stand for bytes in byte-level vocabularies, as in GPT-2."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = 256 - len(printable)
    return {chr(byte) for byte in printable} | {chr(256 + number) for number in range(others)}
