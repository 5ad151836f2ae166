"""A run's events, told again as they were told before.

A run that is driven again yields the same texts, calls and results. But it may cut texts into other
pieces, since tokens then come all at once. Clients know the events by their numbers, so the pieces
are cut again as the journal says.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from caesura.intercept.calls.events import ArgumentsDelta, ReasoningDelta, TextDelta
from caesura.runtime.events import RunEvent, ToolReported, ToolReturned
from caesura.runtime.journal.record import OTHER, BadJournal, Step

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
