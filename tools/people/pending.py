"""Pending items: the record of a question, or of a call that a person must approve."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from caesura.tools.errors import Permanent

Kind = Literal["question", "approval"]
State = Literal["open", "answered", "expired", "cancelled", "orphaned"]

STATES: tuple[State, ...] = ("open", "answered", "expired", "cancelled", "orphaned")
OPEN: tuple[State, ...] = ("open",)
UNSETTLED: tuple[State, ...] = ("open", "orphaned")
"""The states in which an item can be answered."""

MAX_QUESTION_CHARACTERS = 4000
MAX_ANSWER_CHARACTERS = 4000
MAX_ARGUMENTS_CHARACTERS = 16_000
MAX_OPTIONS = 20
MAX_OPTION_CHARACTERS = 200
MAX_WHO_CHARACTERS = 100


class NoAnswer(Permanent):
    """A question or an approval failed. The message is for the model."""


class PeopleError(RuntimeError):
    """An error of the person who answers; the message is one sentence."""


class NotPending(PeopleError):
    """The item can no longer be answered, or not in this process."""


class NoSuchItem(NotPending):
    """No item has that id."""


def no_such_item(item_id: str) -> NoSuchItem:
    """Return the error for an id that no item has."""
    return NoSuchItem(f"there is no pending item {item_id[:64]!r}")


class BadAnswer(PeopleError):
    """The answer is not valid; the message says which answers are."""


@dataclass(frozen=True, slots=True)
class Pending:
    """One question, or one call to approve. Times are seconds since 1970."""

    id: str
    kind: Kind
    session: str
    """The session that asks."""
    conversation: str
    """Digest of the conversation before the run that asks; empty: unknown."""
    tool: str
    """The tool that asks, or whose call needs approval."""
    question: str
    """The question. For an approval, what the person must know beside the call; mostly empty."""
    arguments: str
    """The arguments of the call to approve, as JSON text; empty for a question."""
    options: tuple[str, ...]
    """Answers to choose from; other texts are accepted too."""
    created: float
    deadline: float
    default: str | None
    """The answer to a question at its deadline; None: the question fails."""
    state: State = "open"
    answer: str | None = None
    """The answer to a question, or the reason given with an approval or a denial."""
    approved: bool | None = None
    """The decision about a call; None: not decided yet, and always for a question."""
    who: str = ""
    """The name that the answering person gave."""
    tenant: str = ""
    """The digest of the API key whose client asks; empty without a key."""

    def public(self) -> dict[str, Any]:
        """Return the item as JSON-able data, without the tenant."""
        names = (field.name for field in fields(self) if field.name != "tenant")
        data = {name: getattr(self, name) for name in names}
        return data | {"options": list(self.options)}

    @classmethod
    def from_public(cls, data: Mapping[str, Any]) -> "Pending":
        """Return the item of `public` data; raises ValueError for other data."""
        names = {field.name for field in fields(cls)}
        try:
            known = {name: value for name, value in data.items() if name in names}
            return cls(**{**known, "options": tuple(data["options"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a pending item: {error}") from error


def key_of(item: "Pending", asked: Any, asker: str) -> str:
    """Return a key that is equal for the same question in the same conversation.

    An empty key never matches. `asker` is a digest of the client's identity, empty if unknown.
    An answer belongs to its client, or else to the clients of its API key. An approval for an
    unknown client belongs to its run alone, so its key is empty.
    """
    kind, conversation = item.kind, item.conversation
    if not conversation or (kind == "approval" and not asker):
        return ""
    text = json.dumps([kind, conversation, item.tool, asked, asker or item.tenant], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def shown(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON text for a person.

    Raises NoAnswer where the text is too long to show: a person must see what they approve.
    """
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    if len(text) > MAX_ARGUMENTS_CHARACTERS:
        raise NoAnswer(
            f"the call needs a person's approval, and its arguments have {len(text)} characters: "
            f"at most {MAX_ARGUMENTS_CHARACTERS} can be shown"
        )
    return whole(text)


def checked(question: str, options: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a question in its stored form. Raises NoAnswer, for the model, where it is invalid."""
    question = whole(question).strip()
    if not question:
        raise NoAnswer("the question is empty")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise NoAnswer(
            f"the question has {len(question)} characters; "
            f"at most {MAX_QUESTION_CHARACTERS} are allowed"
        )
    if len(options) > MAX_OPTIONS:
        raise NoAnswer(f"there are {len(options)} options; at most {MAX_OPTIONS} are allowed")
    if any(len(option) > MAX_OPTION_CHARACTERS for option in options):
        raise NoAnswer(f"an option has more than {MAX_OPTION_CHARACTERS} characters")
    return question, tuple(whole(option) for option in options)


def checked_answer(text: str) -> str:
    """Return an answer in its stored form; raises BadAnswer."""
    if not text.strip():
        raise BadAnswer("the answer is empty")
    if len(text) > MAX_ANSWER_CHARACTERS:
        raise BadAnswer(
            f"the answer has {len(text)} characters; at most {MAX_ANSWER_CHARACTERS} are allowed"
        )
    return whole(text)


def whole(text: str) -> str:
    """Return the text as valid Unicode: a lone surrogate could be neither stored nor sent."""
    return text.encode("utf-8", "replace").decode()
