"""The entries of a run as JSON text, and what a journal tells of a run when it is read again.

An entry is a pair: its kind and its value. What is read is not trusted: a journal may have been
written by another version, or by somebody else.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json, to_jsonable_python

from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from caesura.tools.result import ToolResult

VERSION = 1

MAX_DEATHS = 3
"""At so many deaths of servers under a run that did not get on between, it is given up."""

Kind = Literal[
    "begin",
    "turn",
    "tokens",
    "told_tokens",
    "outcome",
    "call",
    "result",
    "told",
    "step",
    "resumed",
    "left",
]

Step = int | str | dict[str, Any]
"""What a client was told of a run, in order: the length of a piece of text, the id of a call whose
result came, `OTHER` for any other event, or an object that the run's server understands."""
OTHER = -1
"""A step for an event that is neither a piece of text nor a result."""

_TURN = TypeAdapter(LoggedTurn)
_OUTCOME = TypeAdapter(TurnOutcome)
_RESULT = TypeAdapter(ToolResult)
_TOKENS = TypeAdapter(list[int])
_STEPS = TypeAdapter(list[int | str])
_TOLD_TOKENS = TypeAdapter(tuple[list[int], list[int | str]])
_OBJECT = TypeAdapter(dict[str, Any])


class BadJournal(ValueError):
    """A journal cannot be read; the message is one sentence that says why."""


@dataclass(slots=True)
class Recorded:
    """What a journal tells of a run."""

    run: str
    about: dict[str, Any]
    """What the run's server needs to begin it again."""
    turns: list[LoggedTurn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    dispatched: list[str] = field(default_factory=list)
    """The ids of calls whose tools began to run."""
    results: dict[str, ToolResult] = field(default_factory=dict)
    entries: int = 0
    """The number of entries; the next one has this number."""
    earlier_deaths: int = 0
    """The deaths that were known when the run was taken up the last time."""
    was_left: bool = False
    """Whether the last server stopped, and did not die."""

    @property
    def deaths(self) -> int:
        """How many servers have died under the run since it last ended a turn or a call.

        A death while the run only waited, as for a person, does not count.
        """
        in_engine = not self.turns or self.turns[-1].outcome is None
        died = not self.was_left and (in_engine or bool(self.unknown))
        return self.earlier_deaths + died

    @property
    def unknown(self) -> list[str]:
        """The calls that were dispatched and have no result."""
        return [call for call in self.dispatched if call not in self.results]


def encoded(kind: Kind, value: Any) -> str:
    """Return the text of an entry."""
    try:
        return to_json([kind, value]).decode()
    except ValueError:  # a text holds half a surrogate pair, which UTF-8 does not have
        return json.dumps([kind, to_jsonable_python(value)])


def begun(about: dict[str, Any]) -> str:
    """Return the text of a run's first entry."""
    return encoded("begin", {"version": VERSION, "about": about})


def recorded(run: str, bodies: Sequence[str]) -> Recorded:
    """Return what the entries of a run tell; raise `BadJournal` if one of them makes no sense."""
    place = 0
    try:
        kind, first = json.loads(bodies[0])
        if kind != "begin" or first["version"] != VERSION:
            raise BadJournal(
                f"the journal of {run} does not begin with an entry of version {VERSION}, but with"
                f" {bodies[0][:60]!r}"
            )
        told = Recorded(run, _OBJECT.validate_python(first["about"]), entries=len(bodies))
        for body in bodies[1:]:
            place += 1
            kind, value = json.loads(body)
            told.was_left = kind == "left"
            if not told.was_left:
                _take(told, kind, value)
        if told.dispatched and not told.turns:
            raise BadJournal(
                f"the journal of {run} holds calls and no tokens, so that they would be made again"
            )
    except BadJournal:
        raise
    except (ValidationError, ValueError, TypeError, KeyError, LookupError, RecursionError) as error:
        raise BadJournal(
            f"entry {place} of the journal of {run} cannot be read: {str(error)[:200]}"
        ) from None
    return told


def _take(told: Recorded, kind: str, value: Any) -> None:
    match kind:
        case "turn":
            told.turns.append(_TURN.validate_python(value))
        case "tokens":
            told.turns[-1].sampled.extend(_TOKENS.validate_python(value))
        case "told_tokens":
            tokens, steps = _TOLD_TOKENS.validate_python(value)
            told.turns[-1].sampled.extend(tokens)
            told.steps += steps
        case "outcome":
            told.turns[-1].outcome = _OUTCOME.validate_python(value)
            told.earlier_deaths = 0
        case "call":
            told.dispatched.append(str(value))
        case "result":
            result = _RESULT.validate_python(value)
            told.results[result.call_id] = result
            told.earlier_deaths = 0
        case "told":
            told.steps += _STEPS.validate_python(value)
        case "step":
            told.steps.append(_OBJECT.validate_python(value))
        case "resumed":
            told.earlier_deaths = int(value)
        case _:
            raise BadJournal(f"there is no entry of kind {kind[:40]!r}")
