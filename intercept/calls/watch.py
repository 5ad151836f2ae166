"""Seeing a call in the engine, at the exact token.

A `Watch` reads one turn, token by token, as bytes: markers are matched on bytes and not on token
ids, since `)]` may be part of `)]\\n` or of `")]`, and every way of cutting a text into tokens must
give the same verdict. It is fed and answers; it holds no clock and no request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from caesura.intercept.calls.call_body import CallBody
from caesura.intercept.calls.formats import resolve
from caesura.intercept.calls.markers import Hit, beginnings, first_hit, held_back
from caesura.intercept.calls.thinking import MARKERS, REGIONS, Thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.pause_hints import PauseHint, hints_from_wire

Turn = Literal["fresh", "begun", "holding"]

MOST_TEXTS = 1000
MOST_CHARACTERS = 65536
"""Of the tools, or of the stop texts, of one plan: each token may be compared with all of them."""


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
    turn stood before it). `pauses` are hints about the tools' pauses, by name. `thinking` is the
    opener of the region of thinking in which the turn begins, empty if it begins in none. Raises
    `ValueError` for another opener than those of `REGIONS`, for more than `MOST_TEXTS` of anything,
    or for more than `MOST_CHARACTERS` in them.
    """

    formats: tuple[str, ...]
    tools: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    turn: Turn = "fresh"
    pauses: Mapping[str, PauseHint] = field(default_factory=dict)
    thinking: str = ""

    def __post_init__(self) -> None:
        if self.thinking and self.thinking not in REGIONS:
            raise ValueError(
                f"watch.thinking must be empty or one of {', '.join(REGIONS)},"
                f" not {self.thinking!r:.100}"
            )
        for name in ("formats", "tools", "stop", "pauses"):
            texts = getattr(self, name)
            if len(texts) > MOST_TEXTS or sum(map(len, texts)) > MOST_CHARACTERS:
                raise ValueError(
                    f"watch.{name} may have {MOST_TEXTS} entries and {MOST_CHARACTERS} characters,"
                    f" not {len(texts)} and {sum(map(len, texts))}"
                )

    def to_wire(self) -> dict[str, Any]:
        """Return the plan as msgpack-able data."""
        data: dict[str, Any] = {
            "formats": list(self.formats),
            "tools": list(self.tools),
            "stop": list(self.stop),
            "turn": self.turn,
        }
        if self.pauses:
            data["pauses"] = {name: hint.to_wire() for name, hint in self.pauses.items()}
        if self.thinking:
            data["thinking"] = self.thinking
        return data

    @classmethod
    def from_wire(cls, data: Any) -> "WatchPlan":
        """Read a plan; raises `ValueError` naming the field that is wrong."""
        if not isinstance(data, Mapping):
            raise ValueError("watch must be an object")
        texts: dict[str, tuple[str, ...]] = {}
        for name in ("formats", "tools", "stop"):
            value = data.get(name, ())
            if not isinstance(value, list | tuple) or not all(
                isinstance(text, str) and text for text in value
            ):
                raise ValueError(f"watch.{name} must be a list of non-empty texts")
            texts[name] = tuple(value)
        turn = data.get("turn", "fresh")
        if turn not in ("fresh", "begun", "holding"):
            raise ValueError(f"watch.turn must be fresh, begun or holding, not {turn!r}")
        thinking = data.get("thinking", "")
        if not isinstance(thinking, str):
            raise ValueError(f"watch.thinking must be a text, not {thinking!r:.100}")
        pauses = hints_from_wire(data.get("pauses", {}))
        plan = cls(**texts, turn=turn, pauses=pauses, thinking=thinking)
        resolve(plan.formats, plan.tools)
        return plan


class Watch:
    """Reads the tokens of one turn and says at which one the request stops, and why."""

    def __init__(self, plan: WatchPlan, vocabulary: Vocabulary, ends: frozenset[int]) -> None:
        """`ends` are the token ids that end a turn by themselves."""
        formats = self.formats = resolve(plan.formats, plan.tools)
        self._vocabulary = vocabulary
        self._ends = ends
        self.pauses = plan.pauses
        self._stops = [text.encode() for text in plan.stop]
        self._openers = [(text.encode(), form) for form in formats for text in form.opens]
        self._anchors = [text.encode() for form in formats for text in form.anchors]
        sections = [text.encode() for form in formats for text in form.section if text]
        self._outside = [*(text for text, _ in self._openers), *self._stops, *sections]
        lines = (*MARKERS, b"\n") if formats else ()
        self._begins = beginnings([*self._outside, *lines])
        self._thinking = Thinking(formats, plan.thinking)
        self._inside: CallBody | None = None
        self._window = b""
        self._head: bytes | None = b"" if self._anchors and plan.turn == "fresh" else None
        self.holds_call = plan.turn == "holding"
        self.overshoot = b""
        """Bytes of the last token behind the marker that it completed."""

    def feed(self, token_id: int) -> Verdict | None:
        """Read the next token of the turn; None: it goes on."""
        if token_id in self._ends:
            self._pass(self._window)
            # A line may be the last of its turn; other calls that are not closed are no calls.
            line = self._inside is not None and self._inside.form.body == "line"
            return Verdict.CALL if self.holds_call or line else Verdict.END
        return self._watch_body(self._vocabulary.bytes_of(token_id))

    def first_stop(self, token_ids: Sequence[int]) -> tuple[int, Verdict] | None:
        """Feed tokens until one stops the request; return its index and the verdict."""
        for index, token_id in enumerate(token_ids):
            verdict = self.feed(token_id)
            if verdict is not None:
                return index, verdict
        return None

    def _watch_body(self, data: bytes) -> Verdict | None:
        while data:
            rest, verdict = self._read_call(data) if self._inside else self._read_text(data)
            if verdict is not None:
                self.overshoot = rest
                return verdict
            data = rest
        return None

    def _read_text(self, data: bytes) -> tuple[bytes, Verdict | None]:
        """Read up to the next marker; return what stands behind it."""
        if not self._window and self._begins.search(data) is None:
            # Nearly every token of a text comes here, and most of them change nothing.
            if self._thinking.blank or self._head is not None:
                self._pass(data)
            return b"", None
        self._window += data
        markers = self._stops if self._thinking.inside else self._outside
        hit = first_hit(self._window, markers)
        thought = self._thinking.next(self._window)
        if thought is not None and (hit is None or thought.end < hit.end):
            return self._read_thought(thought), None
        if hit is None:
            kept = held_back(self._window, [*markers, *self._thinking.markers])
            self._pass(self._window[: len(self._window) - kept])
            self._window = self._window[len(self._window) - kept :]
            return b"", None
        self._pass(self._window[: hit.start])
        rest, self._window = self._window[hit.end :], b""
        return rest, Verdict.STOP if self._thinking.inside else self._read_marker(hit.marker)

    def _read_thought(self, hit: Hit) -> bytes:
        """Read up to a marker of thinking, and past it if it counts; return what stands behind."""
        window, self._window = self._window, b""
        self._pass(window[: hit.start])
        if not self._thinking.pass_marker(hit):
            self._pass(window[hit.start : hit.start + 1])
            return window[hit.start + 1 :]
        if not self._thinking.inside and self._anchors:
            self._head = b""
        return window[hit.end :]

    def _read_marker(self, marker: int) -> Verdict | None:
        """Act on a marker of those that count outside calls, by its index."""
        marker -= len(self._openers)
        if 0 <= marker < len(self._stops):
            return Verdict.STOP
        if marker >= 0:
            self._thinking.passed_call()
            return None
        form = self._openers[marker][1]
        self._head = None
        self.holds_call = self.holds_call or form.pause == "turn"
        if form.closes is not None or form.body == "json":
            self._inside = CallBody(form)
        return None

    def _pass(self, data: bytes) -> None:
        """Take note of text outside calls that holds no marker."""
        self._thinking.passed(data)
        if self._head is None or self._thinking.inside:
            return
        # Some formats count only as the first text of a turn.
        self._head = (self._head + data).lstrip()
        if any(self._head.startswith(text) for text in self._anchors):
            self.holds_call = True
            self._thinking.stop()
            self._head = None
        elif not any(text.startswith(self._head) for text in self._anchors):
            self._head = None

    def _read_call(self, data: bytes) -> tuple[bytes, Verdict | None]:
        """Read up to the end of the call; return what stands behind it."""
        assert self._inside is not None
        rest = self._inside.feed(data)
        if rest is None:
            return b"", None
        pause = self._inside.form.pause
        self._inside = None
        self._thinking.passed_call()
        return rest, Verdict.CALL if pause == "call" else None
