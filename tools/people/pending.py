"""What waits for a person: the record of a question, or of a call that somebody has to approve."""

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
    """A question or an approval that came to nothing. The message is for the model."""


class PeopleError(RuntimeError):
    """What somebody who answers did wrong; the message is one sentence."""


class NotPending(PeopleError):
    """The item can no longer be answered, or not here."""


class NoSuchItem(NotPending):
    """There is no item of that id."""


class BadAnswer(PeopleError):
    """An answer that cannot be taken; the message says which can."""


@dataclass(frozen=True, slots=True)
class Pending:
    """One question, or one call to approve. Times are seconds since 1970."""

    id: str
    kind: Kind
    session: str
    """The session that asks."""
    conversation: str
    """The digest of what was said before the run that asks; empty: not known."""
    tool: str
    """The tool that asks, or whose call is to be approved."""
    question: str
    """What is asked; empty for an approval."""
    arguments: str
    """The arguments of the call to approve, as JSON text; empty for a question."""
    options: tuple[str, ...]
    """Answers to choose from; any other text is an answer too."""
    created: float
    deadline: float
    default: str | None
    """What counts as the answer to a question at its deadline; None: there is none."""
    state: State = "open"
    answer: str | None = None
    """The answer to a question; the reason that was given with an approval or a denial."""
    approved: bool | None = None
    """What was decided about a call; None: nothing yet, and always for a question."""
    who: str = ""
    """Who answered, as they named themselves."""

    def public(self) -> dict[str, Any]:
        """The item as JSON-able data."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return data | {"options": list(self.options)}

    @classmethod
    def from_public(cls, data: Mapping[str, Any]) -> "Pending":
        """Read what `public` gave; raises ValueError if it is anything else."""
        names = {field.name for field in fields(cls)}
        try:
            known = {name: value for name, value in data.items() if name in names}
            return cls(**{**known, "options": tuple(data["options"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a pending item: {error}") from error


def key_of(kind: Kind, conversation: str, tool: str, asked: Any, asker: str) -> str:
    """Equal for the same thing asked again in the same conversation; empty: never the same.

    `asker` is a digest of who sent the request, empty if that is not known. An answer belongs to
    its asker. An approval of an unknown asker belongs to its run alone, so it is never the same.
    """
    if not conversation or (kind == "approval" and not asker):
        return ""
    text = json.dumps([kind, conversation, tool, asked, asker], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def shown(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call as JSON text for a person.

    Raises NoAnswer for more than a person can be shown: nobody approves what they cannot see.
    """
    text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    if len(text) > MAX_ARGUMENTS_CHARACTERS:
        raise NoAnswer(
            f"the call needs a person's approval, and its arguments have {len(text)} characters: "
            f"at most {MAX_ARGUMENTS_CHARACTERS} can be shown"
        )
    return whole(text)


def checked(question: str, options: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A question as it is kept; raises NoAnswer, for the model, where it cannot be asked."""
    question = whole(question).strip()
    if not question:
        raise NoAnswer("the question is empty")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise NoAnswer(f"the question has more than {MAX_QUESTION_CHARACTERS} characters")
    if len(options) > MAX_OPTIONS:
        raise NoAnswer(f"there are more than {MAX_OPTIONS} options")
    if any(len(option) > MAX_OPTION_CHARACTERS for option in options):
        raise NoAnswer(f"an option has more than {MAX_OPTION_CHARACTERS} characters")
    return question, tuple(whole(option) for option in options)


def checked_answer(text: str) -> str:
    """An answer as it is kept; raises BadAnswer."""
    if not text.strip():
        raise BadAnswer("the answer is empty")
    if len(text) > MAX_ANSWER_CHARACTERS:
        raise BadAnswer(f"an answer may have {MAX_ANSWER_CHARACTERS} characters at most")
    return whole(text)


def whole(text: str) -> str:
    """The text as valid Unicode: a lone surrogate could be neither stored nor sent."""
    return text.encode("utf-8", "replace").decode()
