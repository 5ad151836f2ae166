"""The entries of a run as JSON text, what they say when they are read, and the events told again.

An entry is a pair: its kind and its value. What is read is not trusted: a journal may have been
written by another version, or by another program.

A run that is driven again yields the same texts, calls and results. But it may cut texts into other
pieces, since tokens then come all at once. Clients know the events by their numbers, so the pieces
are cut again as the journal says.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json, to_jsonable_python

from caesura.intercept.calls.events import ArgumentsDelta, ReasoningDelta, TextDelta
from caesura.runtime.events import RunEvent, ToolReported, ToolReturned
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
    "late",
    "said",
    "told",
    "step",
    "resumed",
    "left",
    "messages",
    "run",
    "ended",
    "rewound",
]
"""The last four are those of sessions (`runtime/sdk/record.py`)."""

Step = int | str | dict[str, Any]
"""What a client was told of a run, in order: the length of a piece of text, the id of a call whose
result came, `OTHER` for any other event, or an object that the run's server understands."""
OTHER = -1
"""A step for an event that is neither a piece of text nor a result."""


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what reads and writes a type; it is made at its first use, since that takes time."""
    return TypeAdapter(kind)


def of_kind(kind: Any, value: Any) -> Any:
    """Return a value that was read as one of a type. Raises pydantic's `ValidationError`."""
    return adapter(kind).validate_python(value)


class BadJournal(ValueError):
    """A journal cannot be read; the message is one sentence that says why."""


@dataclass(slots=True)
class Recorded:
    """What a journal tells of a run."""

    run_id: str
    about: dict[str, Any]
    """What the run's server needs to begin it again."""
    turns: list[LoggedTurn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    dispatched: list[str] = field(default_factory=list)
    """The ids of calls whose tools began to run."""
    results: dict[str, ToolResult] = field(default_factory=dict)
    late: list[list[str]] = field(default_factory=list)
    """The calls in the background whose results the model was told, by the places where it was."""
    said: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """What the user said within the run, by the turn behind which it was told."""
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


def recorded(run_id: str, bodies: Sequence[str]) -> Recorded:
    """Return what the entries of a run tell; raise `BadJournal` if one of them makes no sense."""
    place = 0
    try:
        kind, first = json.loads(bodies[0])
        if kind != "begin" or first["version"] != VERSION:
            raise BadJournal(
                f"the journal of {run_id} does not begin with an entry of version {VERSION}, but"
                f" with {bodies[0][:60]!r}"
            )
        record = Recorded(run_id, of_kind(dict[str, Any], first["about"]), entries=len(bodies))
        for body in bodies[1:]:
            place += 1
            kind, value = json.loads(body)
            record.was_left = kind == "left"
            if not record.was_left:
                _take(record, kind, value)
        if record.dispatched and not record.turns:
            raise BadJournal(
                f"the journal of {run_id} holds calls and no tokens, so that they would be made"
                " again"
            )
    except BadJournal:
        raise
    except (ValidationError, ValueError, TypeError, KeyError, LookupError, RecursionError) as error:
        raise BadJournal(
            f"entry {place} of the journal of {run_id} cannot be read: {str(error)[:200]}"
        ) from None
    return record


def _take(record: Recorded, kind: str, value: Any) -> None:
    match kind:
        case "turn":
            record.turns.append(of_kind(LoggedTurn, value))
        case "tokens":
            record.turns[-1].sampled.extend(of_kind(list[int], value))
        case "told_tokens":
            tokens, steps = of_kind(tuple[list[int], list[int | str]], value)
            record.turns[-1].sampled.extend(tokens)
            record.steps += steps
        case "outcome":
            record.turns[-1].outcome = of_kind(TurnOutcome, value)
            record.earlier_deaths = 0
        case "call":
            record.dispatched.append(str(value))
        case "result":
            result = of_kind(ToolResult, value)
            record.results[result.call_id] = result
            record.earlier_deaths = 0
        case _:
            _take_told(record, kind, value)


def _take_told(record: Recorded, kind: str, value: Any) -> None:
    """Take an entry of what the model or the client was told, or of a server's begin."""
    match kind:
        case "late":
            record.late.append(of_kind(list[str], value))
        case "said":
            turn, messages = of_kind(tuple[int, list[dict[str, Any]]], value)
            record.said[turn] = messages
        case "told":  # what was streamed
            record.steps += of_kind(list[int | str], value)
        case "step":
            record.steps.append(of_kind(dict[str, Any], value))
        case "resumed":
            record.earlier_deaths = int(value)
        case _:
            raise BadJournal(f"there is no entry of kind {kind[:40]!r}")


Piece = TextDelta | ReasoningDelta | ArgumentsDelta


def step_of(event: RunEvent) -> int | str | None:
    """Return what the journal keeps of an event that was told; None for one that shows nothing."""
    match event:
        case TextDelta(text=text) | ReasoningDelta(text=text) | ArgumentsDelta(text=text):
            return len(text) or None
        case ToolReturned(call=call):
            return call.id
        case ToolReported():
            return None
        case _:
            return OTHER


class Replayed:
    """The events of a run, in the pieces that were told, and steps of the server in their places.

    Behind the last step that was told, the events are new, and come as they are.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        record: Callable[[int | str], None],
        then: Exception | None = None,
    ) -> None:
        """Tell `steps` again; `record` gets the step of each event behind them.

        `then`, if given, is raised in place of further events.
        """
        self._then = then
        self._steps = deque(steps)
        self._record = record
        self.results = [step for step in self._steps if isinstance(step, str)]
        """The ids of the calls whose results were told, in that order."""

    async def events(
        self, events: AsyncGenerator[RunEvent, None]
    ) -> AsyncGenerator[RunEvent | dict[str, Any], None]:
        """Yield the events and, as objects, the steps of the server.

        Raises `BadJournal` if the events are not those that were told.
        """
        rest: Piece | None = None
        async with aclosing(events):
            for step in self._own():
                yield step
            self._stop_behind_last()
            async for event in events:
                if not self._steps:
                    self._note(event)
                    yield event
                elif isinstance(event, Piece):
                    rest = event if rest is None else _joined(rest, event)
                    for piece in self._pieces(rest):
                        yield piece
                    rest = self._rest
                else:
                    if rest is not None and rest.text:
                        raise _unlike(event)
                    rest = None
                    if (told := step_of(event)) is not None and self._steps.popleft() != told:
                        raise _unlike(event)
                    yield event
                    for step in self._own():
                        yield step
                self._stop_behind_last()

    def _stop_behind_last(self) -> None:
        if self._then is not None and not self._steps:
            raise self._then

    def _pieces(self, piece: Piece) -> Iterator[Piece | dict[str, Any]]:
        """Yield what was told of a text, and keep its rest; behind the last step all is new."""
        self._rest: Piece | None = piece
        while self._steps and isinstance(length := self._steps[0], int):
            if length < 0 and self._rest is not None and self._rest.text:
                raise _unlike(piece)
            if length < 0 or self._rest is None or len(self._rest.text) < length:
                return
            self._steps.popleft()
            first, rest = self._rest.text[:length], self._rest.text[length:]
            yield _with(self._rest, first)
            self._rest = _with(self._rest, rest) if rest else None
            yield from self._own()
        if self._rest is not None and not self._steps:
            new, self._rest = self._rest, None
            self._note(new)
            yield new

    def _note(self, event: RunEvent) -> None:
        if (step := step_of(event)) is not None:
            self._record(step)

    def _own(self) -> Iterable[dict[str, Any]]:
        """Yield the server's own steps that come next."""
        while self._steps and isinstance(step := self._steps[0], dict):
            self._steps.popleft()
            yield step


def _with(piece: Piece, text: str) -> Piece:
    if isinstance(piece, TextDelta):
        return TextDelta(text)
    return replace(piece, text=text)


def _joined(first: Piece, second: Piece) -> Piece:
    if not second.text:
        return first
    if not first.text:
        return second
    same = type(first) is type(second)
    if isinstance(first, ArgumentsDelta) and isinstance(second, ArgumentsDelta):
        same = first.call_id == second.call_id
    if not same:
        raise _unlike(second)
    return _with(first, first.text + second.text)


def _unlike(event: RunEvent) -> BadJournal:
    return BadJournal(
        f"the journal does not fit the run: {type(event).__name__} comes where its client was told"
        " of something else"
    )
