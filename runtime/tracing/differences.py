"""What differs where a history no longer continues an earlier conversation, as excerpts of both.

The engine knows digests alone. So the conversations of late are kept here, only where contents are
recorded or sent.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

from caesura.intercept.calls.thinking import REGIONS
from caesura.runtime.tracing.content import clean, plain
from caesura.runtime.tracing.masking import masked
from caesura.scheduler.histories import REASONING, kind_of, length_up_to_answer, place_of
from caesura.scheduler.messages import Message, has_media

MAX_CONVERSATIONS = 256
MAX_CHARACTERS = 2**24
BEFORE = 60
"""The most characters of an excerpt before the first that differs."""
BEHIND = 160
"""The most characters of an excerpt from there on."""
_STANDARD = {"role", "content", "tool_calls", "tool_call_id", "name", *REASONING}
_STRIDE = 4096


class Difference(NamedTuple):
    """Excerpts around the first character that differs; an empty one is of a text that ends."""

    kept: str
    sent: str


@dataclass(frozen=True, slots=True)
class _Conversation:
    owner: str
    asked: int
    """How many of the messages were there before the model's first turn."""
    messages: tuple[Message, ...]
    """The last one is the model's."""
    characters: int

    def has(self, at: int, length: int) -> bool:
        """Return whether a history of `length` messages has the message `at` of this one there.

        Behind what was asked, a client may have seen fewer messages than the model.
        """
        return at < self.asked or length == len(self.messages)


class Conversations:
    """The conversations of late, bounded in number and in characters; callable by any thread.

    Those of one owner are never compared with another's.
    """

    def __init__(
        self, max_conversations: int = MAX_CONVERSATIONS, max_characters: int = MAX_CHARACTERS
    ) -> None:
        """Create an empty memory; the conversations that ended longest ago are dropped first."""
        self._max_conversations = max_conversations
        self._max_characters = max_characters
        self._lock = Lock()
        self._numbers = count()
        self._kept: OrderedDict[int, _Conversation] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        """Return the number of conversations."""
        return len(self._kept)

    def keep(self, owner: str, messages: Sequence[Message], asked: int) -> None:
        """Keep a conversation whose last message is the model's.

        `asked` is the number of messages before the model's first turn. One with pictures or
        sounds is never continued, and not kept.
        """
        if has_media(messages):
            return
        size = sum(_size(message) for message in messages)
        with self._lock:
            made = _Conversation(owner, asked, tuple(messages), size)
            self._kept[next(self._numbers)] = made
            self._characters += size
            while len(self._kept) > self._max_conversations or (
                self._characters > self._max_characters
            ):
                _, dropped = self._kept.popitem(last=False)
                self._characters -= dropped.characters

    def difference(self, owner: str, sent: Sequence[Message], field: str) -> Difference | None:
        """Return how `sent` differs from the conversation that it would have continued.

        `field` is the first part that differs, as `FollowUpReport.field` names it. The result is
        None where that is no part of a message, where the conversation is not known, and where a
        mask leaves no difference. All texts are masked.
        """
        at, length = place_of(field), length_up_to_answer(sent)
        if at is None or length is None:
            return None
        part = kind_of(field) if "." in field else "message"
        history = sent[:length]
        new = _text(history, at, part)
        differing = [
            kept
            for kept in self._alike(owner, history)
            if kept.has(at, length)
            and _text(kept.messages, at, part) != new
            and _agreeing(kept.messages[:at], history[:at]) == at
        ]
        if not differing:
            return None
        # Several sessions may have ended with the same words.
        kept = max(differing, key=lambda each: _agreeing(each.messages, history))
        return _differing(masked(_text(kept.messages, at, part)), masked(new))

    def _alike(self, owner: str, history: Sequence[Message]) -> list[_Conversation]:
        """Return those that end with the same answer, else those with another one to the same.

        The latest comes first.
        """
        with self._lock:
            own = [each for each in reversed(self._kept.values()) if each.owner == owner]
        mark, before = _mark(history[-1]), len(history) - 1
        alike = [each for each in own if _mark(each.messages[-1]) == mark]
        return alike or [
            each
            for each in own
            if len(each.messages) == len(history) and _agreeing(each.messages, history) >= before
        ]


@dataclass(frozen=True, slots=True)
class Histories:
    """The conversations of one owner."""

    conversations: Conversations
    owner: str

    def keep(self, messages: Sequence[Message], asked: int) -> None:
        """Keep a conversation; see `Conversations.keep`."""
        self.conversations.keep(self.owner, messages, asked)

    def difference(self, sent: Sequence[Message], field: str) -> Difference | None:
        """Return how a history differs from one that is kept; see `Conversations.difference`."""
        return self.conversations.difference(self.owner, sent, field)


def _size(message: Message) -> int:
    calls = message.get("tool_calls") or ()
    arguments = sum(len(str(_function(call).get("arguments") or "")) for call in calls)
    thought = sum(len(str(message.get(name) or "")) for name in REASONING)
    return len(plain(message.get("content"))) + arguments + thought


def _mark(answer: Message) -> object:
    """Return what tells an answer from others: the ids of its calls, or else its text."""
    calls = answer.get("tool_calls")
    if calls:
        return tuple(str(call.get("id")) for call in calls)
    return _answered(plain(answer.get("content"))).strip()


def _agreeing(some: Sequence[Message], others: Sequence[Message]) -> int:
    """Return how many messages have the same role and text in both."""
    pairs = zip(some, others, strict=False)
    return sum(
        all(_part(one, part) == _part(other, part) for part in ("role", "content"))
        for one, other in pairs
    )


def _text(messages: Sequence[Message], at: int, part: str) -> str:
    """Return a part of the message `at`, or an empty text if there is no such message."""
    return _part(messages[at], part) if at < len(messages) else ""


def _part(message: Message, part: str) -> str:
    calls = message.get("tool_calls") or ()
    match part:
        case "content":
            text = plain(message.get("content"))
            return _answered(text) if message.get("role") == "assistant" else text
        case "reasoning":
            return next((str(message[name]) for name in REASONING if message.get(name)), "")
        case "tool_calls":
            return ", ".join(str(_function(call).get("name")) for call in calls)
        case "arguments":
            return "\n".join(_spelled(_function(call).get("arguments")) for call in calls)
        case "fields":
            return _json({name: message[name] for name in message if name not in _STANDARD})
        case "message":
            parts = (_part(message, name) for name in ("content", "tool_calls", "arguments"))
            return "\n".join(each for each in parts if each)
        case _:
            return str(message.get(part) or "")


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return call.get("function") or {}


def _answered(text: str) -> str:
    """Return an answer without the thinking that a client left in it, and lines before it."""
    text = text.lstrip()
    for opener, closer in REGIONS.items():
        if text.startswith(opener) and closer in text:
            return text.partition(closer)[2].lstrip()
    return text


def _spelled(arguments: object) -> str:
    """Return arguments in one spelling, in which spaces and the order of keys do not differ."""
    try:
        return _json(json.loads(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return str(arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _differing(kept: str, sent: str) -> Difference | None:
    if kept == sent:
        return None
    longest = max(len(kept), len(sent))
    strides = range(0, longest, _STRIDE)
    start = next(at for at in strides if kept[at : at + _STRIDE] != sent[at : at + _STRIDE])
    first = next(at for at in range(start, longest) if kept[at : at + 1] != sent[at : at + 1])
    return Difference(_excerpt(kept, first), _excerpt(sent, first))


def _excerpt(text: str, at: int) -> str:
    """Return the text around a place, with dots where it is cut."""
    begin, end = max(0, at - BEFORE), at + BEHIND
    cut = text[begin:end]
    return clean(f"{'…' if begin else ''}{cut}{'…' if end < len(text) else ''}", len(cut) + 2)
