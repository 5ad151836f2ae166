"""Reading a turn with a parser of calls in a sentence, and what its events say."""

import itertools
import json
from collections.abc import Callable, Sequence

from caesura.intercept.calls.events import CallFinished, Event, TextDelta
from caesura.intercept.calls.inline import InlineParser
from caesura.intercept.calls.react import ReactParser


def counted_ids() -> Callable[[], str]:
    """Return a function that returns `call1`, `call2` and so on."""
    counter = itertools.count(1)
    return lambda: f"call{next(counter)}"


def read_turn(
    parser: InlineParser | ReactParser, pieces: Sequence[str], end: bool = True
) -> list[Event]:
    events = [event for piece in pieces for event in parser.push(piece)]
    return [*events, *(parser.end() if end else ())]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls_of(events: list[Event]) -> list[tuple[str, dict[str, object]]]:
    return [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, CallFinished)]
