"""The memory of given answers: a history that holds one of them unchanged gets its tokens back.

A follow-up carries an earlier answer as messages. The tokens that the model sampled for it are
known here, so they need not be rendered again, and the prefix cache has their KV.
"""

import hashlib
import json
from array import array
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from caesura.intercept.calls.events import FollowUpReport
from caesura.scheduler.messages import Message, SessionSpec

MAX_ANSWERS = 4_096
MAX_BYTES = 128 * 2**20
BYTES_PER_TOKEN = array("I").itemsize
REASONING = ("reasoning", "reasoning_content")
"""Fields of an answer that most clients leave out when they send it back."""

Missing = Literal["unknown", "changed"]
"""Why a history has no tokens: its last answer is not known, or not with this history before it."""


@dataclass(frozen=True, slots=True)
class History:
    """Messages that end with an answer, as digests."""

    key: bytes
    """Digest of all that shapes the prompt: the messages, the tools and the template's variables.

    The owner and the cache salt belong to it too.
    """
    mark: bytes
    """Digest of the answer alone: the ids of its calls, or without calls its content."""
    reasoning: tuple[bytes | None, ...]
    """Digests of the reasoning of each answer; None where a message leaves it out."""


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The prompt of a follow-up; without `tokens` the whole history has to be rendered."""

    report: FollowUpReport
    tokens: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    tokens: "array[int]"
    history: History


class Answers:
    """The tokens of the latest answers, bounded in number and bytes. Not safe for threads.

    Tokens are found only by the digest of messages that are equal, in every character, to those
    that were sent and answered. A client so gets back only what it can write down itself. What an
    answer does not show (results of server tools, dropped thinking) may be among the tokens, so
    the digest also binds `SessionSpec.owner`.
    """

    def __init__(self, max_answers: int = MAX_ANSWERS, max_bytes: int = MAX_BYTES) -> None:
        """Create an empty memory; the answers that were used longest ago are dropped first."""
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._answers: OrderedDict[bytes, _Answer] = OrderedDict()
        self._marks: Counter[bytes] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._answers)

    def remember(self, history: History, tokens: Sequence[int]) -> None:
        """Keep the tokens of a history; they replace those of an equal one."""
        self._drop(history.key)
        self._answers[history.key] = _Answer(array("I", tokens), history)
        self._marks[history.mark] += 1
        self._bytes += BYTES_PER_TOKEN * len(tokens)
        while len(self._answers) > self._max_answers or self._bytes > self._max_bytes:
            self._drop(next(iter(self._answers)))

    def find(self, history: History) -> Sequence[int] | Missing:
        """Return the tokens of an equal history, or why there are none."""
        found = self._answers.get(history.key)
        if found is None:
            return "changed" if history.mark in self._marks else "unknown"
        given = zip(history.reasoning, found.history.reasoning, strict=True)
        if any(sent is not None and sent != kept for sent, kept in given):
            return "changed"
        self._answers.move_to_end(history.key)
        return found.tokens

    def _drop(self, key: bytes) -> None:
        answer = self._answers.pop(key, None)
        if answer is None:
            return
        self._bytes -= BYTES_PER_TOKEN * len(answer.tokens)
        mark = answer.history.mark
        self._marks[mark] -= 1
        if not self._marks[mark]:
            del self._marks[mark]


def length_up_to_answer(messages: Sequence[Message]) -> int | None:
    """Return the number of messages up to the last answer, or None if nothing follows an answer."""
    if not messages or messages[-1].get("role") == "assistant":
        return None
    places = range(len(messages), 0, -1)
    return next((at for at in places if messages[at - 1].get("role") == "assistant"), None)


def history_of(messages: Sequence[Message], spec: SessionSpec) -> History:
    """Return the digests of messages of which the last one is an answer."""
    answer = messages[-1]
    shaped_by = [spec.tools, sorted(spec.template.items()), spec.cache_salt]
    parts = [spec.owner, shaped_by, [_canonical(each) for each in messages]]
    ids = [call.get("id") for call in answer.get("tool_calls") or ()]
    return History(
        key=_digest(parts),
        mark=_digest([spec.owner, ids or answer.get("content") or ""]),
        reasoning=tuple(_thought(each) for each in messages if each.get("role") == "assistant"),
    )


def _thought(message: Message) -> bytes | None:
    given = (message[name] for name in REASONING if message.get(name))
    return next((_digest(text) for text in given), None)


def _canonical(message: Message) -> list[Any]:
    """Return a message's fields in a fixed order; a missing field equals an empty one.

    An answer's reasoning is left out. Arguments keep the order and the spelling that they have.
    """
    plain = {name: value for name, value in message.items() if value not in (None, "", [], ())}
    if message.get("role") == "assistant":
        plain = {name: value for name, value in plain.items() if name not in REASONING}
    if "tool_calls" in plain:
        plain["tool_calls"] = [_call(call) for call in plain["tool_calls"]]
    return sorted(plain.items())


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call["function"]
    return [call.get("id"), function.get("name"), function.get("arguments")]


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, default=str).encode()).digest()
