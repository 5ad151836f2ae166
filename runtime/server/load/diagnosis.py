"""Why a prompt could not be served from the cache: it is compared with that of an earlier answer.

Only digests and counts are kept, of requests that ask for it, and of the last `MAX_KEPT` answers.
A later request of the same key names one of these by its id.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from caesura.runtime.run.context import Plan
from caesura.scheduler.messages import Message

MAX_KEPT = 1024
Change = Literal["model", "system", "tools", "messages", "other"]
"""What of a request differs first: its model, a part of its prompt, or what else shapes it."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests of the parts of a prompt, and the sizes of its messages in characters."""

    model: str
    tools: str
    system: str
    messages: tuple[str, ...]
    sizes: tuple[int, ...]
    other: str

    @classmethod
    def of(cls, model: str, plan: Plan) -> "Fingerprint":
        """Return the fingerprint of a plan's prompt."""
        is_system = [each.get("role") == "system" for each in plan.messages]
        first = len([*takewhile(bool, is_system)])
        told = [_text(each) for each in plan.messages[first:]]
        spec = plan.spec
        return cls(
            model,
            _digest(_text(spec.tools)),
            _digest(_text(plan.messages[:first])),
            tuple(map(_digest, told)),
            tuple(map(len, told)),
            _digest(_text([spec.template, spec.tool_choice, spec.cache_salt, spec.prefill])),
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """The fingerprint of an answer's prompt, and how many tokens the prompt had."""

    fingerprint: Fingerprint
    tokens: int


@dataclass(frozen=True, slots=True)
class Miss:
    """What differs from an earlier prompt, which had `tokens`, and how many of them this costs.

    The last is a guess by the characters behind the difference: nothing tells which tokens these
    would have been.
    """

    change: Change
    tokens: int
    missed_tokens: int

    def missed(self, cached_tokens: int | None) -> int:
        """Return how many tokens are missed, by what the engine found in its cache, if known."""
        if cached_tokens is None:
            return self.missed_tokens
        return max(0, self.tokens - cached_tokens)


class Diagnoses:
    """The prompts of recent answers, by the tenant that asked and the answer's id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    def keep(self, tenant: str, answer: str, kept: Kept) -> None:
        """Keep an answer's prompt, and forget the oldest one beyond the most."""
        self._kept[tenant, answer] = kept
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def of(self, tenant: str, answer: str) -> Kept | None:
        """Return the prompt of an answer, or None if it is not kept."""
        return self._kept.get((tenant, answer))


def miss(before: Kept, now: Fingerprint) -> Miss | None:
    """Return what keeps a prompt from being continued, or None if the later one begins with it."""
    old = before.fingerprint
    parts: tuple[tuple[Change, bool], ...] = (
        ("model", old.model != now.model),
        ("system", old.system != now.system),
        ("tools", old.tools != now.tools),
    )
    for change, differs in parts:
        if differs:
            return Miss(change, before.tokens, before.tokens)
    if now.messages[: len(old.messages)] != old.messages:
        pairs = zip(old.messages, now.messages, strict=False)
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        share = sum(old.sizes[same:]) / max(1, sum(old.sizes))
        return Miss("messages", before.tokens, round(before.tokens * share))
    return Miss("other", before.tokens, before.tokens) if old.other != now.other else None


def _text(value: Sequence[Any] | Message) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
