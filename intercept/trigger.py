"""Seeing a call in the engine, at the exact token.

A `Watch` reads one turn, token by token, as bytes: markers are matched on bytes and not on token
ids, since `)]` may be part of `)]\\n` or of `")]`, and every way of cutting a text into tokens must
give the same verdict. It is fed and answers; it holds no clock and no request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from caesura.intercept.formats import CallFormat, resolve
from caesura.intercept.markers import first_hit, held_back
from caesura.intercept.vocabulary import Vocabulary

Turn = Literal["fresh", "begun", "holding"]


class Verdict(Enum):
    """What a token means for its request."""

    CALL = "call"  # it completes a call, or ends a turn that holds calls: pause here
    END = "end"  # it ends a turn that holds no call
    STOP = "stop"  # it completes a stop text: the turn ends here


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What to watch for in one turn; it travels with the request as plain data.

    `formats` name rows of the table of formats, `tools` are the names on offer (the in-line format
    needs them), `stop` are texts that end the turn. `turn` tells where in its turn the request
    stands: `fresh`, `begun` (an in-line call has been answered), or `holding` (and a call of the
    turn stood before it).
    """

    formats: tuple[str, ...]
    tools: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    turn: Turn = "fresh"

    def to_wire(self) -> dict[str, Any]:
        """Return the plan as msgpack-able data."""
        return {
            "formats": list(self.formats),
            "tools": list(self.tools),
            "stop": list(self.stop),
            "turn": self.turn,
        }

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "WatchPlan":
        """Read a plan; raises `ValueError` naming the field that is wrong."""
        texts: dict[str, tuple[str, ...]] = {}
        for field in ("formats", "tools", "stop"):
            value = data.get(field, ())
            if not isinstance(value, list | tuple) or not all(
                isinstance(text, str) and text for text in value
            ):
                raise ValueError(f"watch.{field} must be a list of non-empty texts")
            texts[field] = tuple(value)
        turn = data.get("turn", "fresh")
        if turn not in ("fresh", "begun", "holding"):
            raise ValueError(f"watch.turn must be fresh, begun or holding, not {turn!r}")
        plan = cls(**texts, turn=turn)
        resolve(plan.formats, plan.tools)
        return plan


class Watch:
    """Reads the tokens of one turn and says at which one the request stops, and why."""

    def __init__(self, plan: WatchPlan, vocabulary: Vocabulary, ends: frozenset[int]) -> None:
        """`ends` are the token ids that end a turn by themselves."""
        formats = self.formats = resolve(plan.formats, plan.tools)
        self._vocabulary = vocabulary
        self._ends = ends
        self._stops = [text.encode() for text in plan.stop]
        self._openers = [
            (text.encode(), form) for form in formats if not form.anchored for text in form.opens
        ]
        self._anchors = [
            (text.encode(), form) for form in formats if form.anchored for text in form.opens
        ]
        self._outside = [text for text, _ in self._openers] + self._stops
        self._inside: CallFormat | None = None
        self._closers: list[bytes] = []
        self._window = b""
        self._head: bytes | None = b"" if self._anchors and plan.turn == "fresh" else None
        self.holds_call = plan.turn == "holding"
        self.overshoot = b""
        """Bytes of the last token behind the marker that it completed."""

    def feed(self, token_id: int) -> Verdict | None:
        """Read the next token of the turn; None: it goes on."""
        if token_id in self._ends:
            return Verdict.CALL if self.holds_call else Verdict.END
        data = self._vocabulary.bytes_of(token_id)
        if self._head is not None:
            self._watch_head(data)
        return self._watch_body(data)

    def first_stop(self, token_ids: Sequence[int]) -> tuple[int, Verdict] | None:
        """Feed tokens until one stops the request; return its index and the verdict."""
        for index, token_id in enumerate(token_ids):
            verdict = self.feed(token_id)
            if verdict is not None:
                return index, verdict
        return None

    def _watch_head(self, data: bytes) -> None:
        """Look for formats that count only as the first text of a turn."""
        assert self._head is not None
        self._head = (self._head + data).lstrip()
        for text, _ in self._anchors:
            if self._head.startswith(text):
                self.holds_call = True
        undecided = any(text.startswith(self._head) for text, _ in self._anchors)
        if self.holds_call or not undecided:
            self._head = None

    def _watch_body(self, data: bytes) -> Verdict | None:
        self._window += data
        while True:
            markers = self._closers if self._inside else self._outside
            hit = first_hit(self._window, markers)
            if hit is None:
                kept = held_back(self._window, markers)
                self._window = self._window[len(self._window) - kept :]
                return None
            self._window = self._window[hit.end :]
            verdict = self._enter(hit.marker) if self._inside is None else self._leave()
            if verdict is not None:
                self.overshoot = self._window
                return verdict

    def _enter(self, marker: int) -> Verdict | None:
        if marker >= len(self._openers):
            return Verdict.STOP
        form = self._openers[marker][1]
        self.holds_call = self.holds_call or form.pause == "turn"
        if form.closes is not None:
            self._inside = form
            self._closers = [form.closes.encode()]
        return None

    def _leave(self) -> Verdict | None:
        assert self._inside is not None
        pause = self._inside.pause
        self._inside = None
        return Verdict.CALL if pause == "call" else None
