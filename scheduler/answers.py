"""The memory of given answers: a history that holds one of them unchanged gets its tokens back.

A follow-up carries an earlier answer as messages. The tokens that the model sampled for it are
known here, so they need not be rendered again, and the prefix cache has their KV.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from caesura.intercept.calls.events import FollowUpReport
from caesura.scheduler.histories import History, first_difference, thinks_otherwise

MAX_ANSWERS = 4_096
MAX_BYTES = 128 * 2**20
BYTES_PER_TOKEN = array("I").itemsize
MAX_VARIANTS = 16
"""The most answers that are kept of histories which say the same."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Why a history has no tokens.

    Its last answer is `unknown`, or it is known with another history, which first differs in
    `field` (see `caesura.scheduler.histories.first_difference`).
    """

    why: Literal["unknown", "changed"]
    field: str = ""


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The prompt of a follow-up; without `tokens` the whole history has to be rendered."""

    report: FollowUpReport
    tokens: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    tokens: "array[int]"
    history: History

    @property
    def size_bytes(self) -> int:
        return BYTES_PER_TOKEN * len(self.tokens) + self.history.size_bytes


class Answers:
    """The tokens of the latest answers, bounded in number and bytes. Not safe for threads.

    Tokens are found only by the digest of a history that told the model what the remembered one
    did. A client so gets back only what it can write down itself. What an answer does not show
    (results of server tools, dropped thinking) may be among the tokens, so the digest also binds
    `SessionSpec.owner`.

    Answers to one question may say the same after other thoughts. Each is kept, and a history finds
    the one with its ids of calls and its reasoning.
    """

    def __init__(self, max_answers: int = MAX_ANSWERS, max_bytes: int = MAX_BYTES) -> None:
        """Create an empty memory; the answers that were used longest ago are dropped first."""
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._answers: OrderedDict[_Name, _Answer] = OrderedDict()
        self._by_key: dict[bytes, list[_Name]] = {}
        self._by_hint: dict[bytes, list[_Name]] = {}
        """The answers by their mark, and by what they follow."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._answers)

    def remember(self, history: History, tokens: Sequence[int]) -> None:
        """Keep the tokens of a history; they replace those of one with equal ids and reasoning."""
        name = (history.key, history.ids, history.reasoning)
        self._drop(name)
        answer = self._answers[name] = _Answer(array("I", tokens), history)
        self._bytes += answer.size_bytes
        self._by_key.setdefault(history.key, []).append(name)
        for hint in (history.mark, history.before):
            self._by_hint.setdefault(hint, []).append(name)
        if len(self._by_key[history.key]) > MAX_VARIANTS:
            self._drop(self._by_key[history.key][0])
        while len(self._answers) > self._max_answers or self._bytes > self._max_bytes:
            self._drop(next(iter(self._answers)))

    def find(self, history: History) -> Sequence[int] | Missed:
        """Return the tokens of a history that said the same, or why there are none."""
        names = self._by_key.get(history.key, [])
        spelled = sorted(names, key=lambda name: name[1] == history.ids)
        for name in reversed(spelled):
            if thinks_otherwise(history, self._answers[name].history) is None:
                self._answers.move_to_end(name)
                return self._answers[name].tokens
        alike = names or self._by_hint.get(history.mark) or self._by_hint.get(history.before)
        if not alike:
            return Missed("unknown")
        return Missed("changed", first_difference(history, self._answers[alike[-1]].history))

    def _drop(self, name: "_Name") -> None:
        answer = self._answers.pop(name, None)
        if answer is None:
            return
        self._bytes -= answer.size_bytes
        history = answer.history
        _remove(self._by_key, history.key, name)
        for hint in (history.mark, history.before):
            _remove(self._by_hint, hint, name)


def _remove(names: dict[bytes, list["_Name"]], key: bytes, name: "_Name") -> None:
    names[key].remove(name)
    if not names[key]:
        del names[key]


_Name = tuple[bytes, bytes, tuple[bytes | None, ...]]
"""What makes an answer one of its own: the history's key, its ids and its reasoning."""
