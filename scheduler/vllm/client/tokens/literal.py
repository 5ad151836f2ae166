"""Encoding of text that users, tools and clients write, so that it holds no special tokens.

A tokenizer turns the spelling of a special token into that token wherever it stands. A tool's
result that spells `<|im_end|>` would so end its message and begin another one. Here a random text,
the cut, is put behind the first character of each such spelling before the chat template renders
it. In the rendered text an unused special token replaces each cut, and its id is removed from the
tokens. The cut spelling is then encoded like any other text, and nothing else changes.

The option `split_special_tokens` of transformers is not used: it splits all special tokens, those
of the template too, it leaves added tokens such as Qwen's `<tool_call>`, and it is a state of the
tokenizer, which threads share.
"""

import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.thinking import REGIONS

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
