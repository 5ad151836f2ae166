"""Arrows of a Perfetto trace: from a turn to its request and its calls, and back to the next turn.

An arrow is a pair of flow events with one id: "s" where it begins and "f" where it ends. Readers
bind each to the slice of its thread that is open at its time, so both lie within a slice, and the
end is never before the beginning.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Event = dict[str, Any]


class Place(NamedTuple):
    """A slice that was drawn: its time in whole microseconds, and its track."""

    at: int
    end: int
    track: Event

    def near(self, at: int) -> int:
        """Return the time within the slice that is nearest to `at`."""
        return min(max(at, self.at), self.end - 1)


class Flows:
    """Collects the slices of turns, calls and requests, and draws the arrows between them."""

    def __init__(self) -> None:
        self._turns: dict[str, list[tuple[Place, str | None]]] = {}
        self._calls: dict[str, list[Place]] = {}
        self._states: dict[str, list[Place]] = {}
        self._drawn = 0

    def turn(self, run: str, place: Place, request: str | None) -> None:
        """Note a turn of a run, and the client's id of the request that decoded it."""
        if place.end > place.at:
            self._turns.setdefault(run, []).append((place, request))

    def call(self, run: str, place: Place) -> None:
        """Note a call of a tool that a run has made."""
        if place.end > place.at:
            self._calls.setdefault(run, []).append(place)

    def state(self, request: str, place: Place) -> None:
        """Note a state of a request of the engine."""
        if place.end > place.at:
            self._states.setdefault(request, []).append(place)

    def events(self) -> Iterator[Event]:
        """Yield the arrows. Each takes memory until now, since turns are told when they end."""
        requests = {name.rpartition("-")[0] or name: name for name in self._states}
        for run, told in self._turns.items():
            turns = sorted(told, key=lambda one: one[0].at)
            for place, request in turns:
                known = request if request in self._states else requests.get(request or "")
                if known is not None:
                    yield from self._to_request(place, self._states[known])
            places = [place for place, _ in turns]
            for call in self._calls.get(run, ()):
                yield from self._around(call, places)

    def _to_request(self, turn: Place, states: Sequence[Place]) -> Iterator[Event]:
        """Draw from a turn to the first state of its request that begins within it."""
        starts = [state.at for state in states]
        first = bisect_left(starts, turn.at)
        if first < len(states) and states[first].at < turn.end:
            yield from self._arrow("turn", turn, states[first].at, states[first])
        elif first and turn.at < states[first - 1].end:
            yield from self._arrow("turn", turn, turn.at, states[first - 1])

    def _around(self, call: Place, turns: Sequence[Place]) -> Iterator[Event]:
        """Draw from the turn that made a call, and to the turn that got its result."""
        starts = [turn.at for turn in turns]
        made = bisect_left(starts, call.at + 1) - 1
        if made >= 0:
            yield from self._arrow("call", turns[made], call.at, call)
        back = bisect_left(starts, call.end)
        if back < len(turns):
            yield from self._arrow("result", call, turns[back].at, turns[back])

    def _arrow(self, name: str, source: Place, at: int, target: Place) -> Iterator[Event]:
        """Draw an arrow that ends at `at`, in `target`."""
        self._drawn += 1
        same = {"name": name, "cat": "flow", "id": self._drawn}
        yield {"ph": "s", **same, "ts": source.near(at), **source.track}
        yield {"ph": "f", "bp": "e", **same, "ts": target.near(at), **target.track}
