"""Detect a call in the engine at the exact token that completes it.

A `Watch` reads one turn, token by token. It matches markers on bytes and not on token ids, since
`)]` may be part of `)]\\n` or of `")]`. Every way of cutting a text into tokens must give the same
verdict. A `Watch` holds no clock and no request.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from caesura.intercept.calls.call_body import CallBody, ReactCall
from caesura.intercept.calls.events import TurnKind
from caesura.intercept.calls.formats import CallFormat, resolve
from caesura.intercept.calls.markers import (
    Hit,
    all_beginnings,
    beginnings,
    first_hit,
    own_markers,
)
from caesura.intercept.calls.mentions import MARKS, Code, TurnBegin, plain_openers
from caesura.intercept.calls.thinking import MARKERS, REGIONS, Thinking
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.pause_hints import PauseHint, hints_from_wire, slowest

SURROGATE = re.compile("[\ud800-\udfff]")
"""A half of a character, which no token's bytes can hold."""

MAX_NAME_BYTES = 1024
"""The begin of a call's text, in which its tool is named."""

MAX_TEXTS = 1000
MAX_CHARACTERS = 65536
"""Limits for each list of texts in a plan; each token may be compared with all of them."""

MAX_MARKERS = 64
"""The number of plans whose markers are kept; requests of one agent have the same plan."""


LINE_END = b"\n"
SENTENCE_ENDS = (b".", b"!", b"?", "\u3002".encode(), "\uff01".encode(), "\uff1f".encode())
"""What ends a sentence; the last three are those of Chinese and Japanese."""
AFTER_SENTENCE = b" \"')]*_"
"""What may stand behind the end of a sentence and belongs to it."""
CHARACTER_BYTES = 4
"""The most bytes of a character."""


class Verdict(Enum):
    """What a token means for its request."""

    CALL = "call"  # it completes a call, or ends a turn that holds calls: pause here
    END = "end"  # it ends a turn that holds no call
    STOP = "stop"  # it completes a stop text: the turn ends here
    CUT = "cut"  # the turn was to be cut, and this is a safe place: pause here


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What to watch for in one turn; the plan travels with the request as plain data.

    `formats` are names of call formats. `tools` are the offered names, which the in-line format
    needs. `stop` are texts that end the turn. `turn` is the request's place in its turn: `fresh`,
    `begun` (an in-line call has been answered), or `holding` (there also was a call that pauses
    at the turn's end). `pauses` are hints about the tools' pauses, by name. `thinking` is the
    opener of the region of thinking in which the turn begins, or empty. With `spelled`, an opener
    counts in other tokens than its own too, since a grammar asks for it. Raises `ValueError` for
    an opener outside `REGIONS`, and for a list with more than `MAX_TEXTS` entries or
    `MAX_CHARACTERS` characters.
    """

    formats: tuple[str, ...]
    tools: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    turn: TurnKind = "fresh"
    pauses: Mapping[str, PauseHint] = field(default_factory=dict)
    thinking: str = ""
    spelled: bool = False

    def __post_init__(self) -> None:
        if self.thinking and self.thinking not in REGIONS:
            raise ValueError(
                f"watch.thinking must be empty or one of {', '.join(REGIONS)},"
                f" got {self.thinking!r:.100}"
            )
        for name in ("formats", "tools", "stop", "pauses"):
            texts = getattr(self, name)
            if len(texts) > MAX_TEXTS or sum(map(len, texts)) > MAX_CHARACTERS:
                raise ValueError(
                    f"watch.{name} may have at most {MAX_TEXTS} entries and {MAX_CHARACTERS}"
                    f" characters, got {len(texts)} and {sum(map(len, texts))}"
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
        if self.spelled:
            data["spelled"] = True
        return data

    @classmethod
    def from_wire(cls, data: Any) -> "WatchPlan":
        """Return the plan that `to_wire` wrote; raises `ValueError` that names the wrong field."""
        if not isinstance(data, Mapping):
            raise ValueError(f"watch must be an object, got {data!r:.100}")
        texts: dict[str, tuple[str, ...]] = {}
        for name in ("formats", "tools", "stop"):
            value = data.get(name, ())
            if not isinstance(value, list | tuple) or not all(map(_is_text, value)):
                raise ValueError(
                    f"watch.{name} must be a list of non-empty texts, got {value!r:.100}"
                )
            texts[name] = tuple(value)
        turn = data.get("turn", "fresh")
        if turn not in ("fresh", "begun", "holding"):
            raise ValueError(f"watch.turn must be fresh, begun or holding, got {turn!r:.100}")
        thinking = data.get("thinking", "")
        if not isinstance(thinking, str):
            raise ValueError(f"watch.thinking must be a text, got {thinking!r:.100}")
        pauses = hints_from_wire(data.get("pauses", {}))
        spelled = bool(data.get("spelled", False))
        plan = cls(**texts, turn=turn, pauses=pauses, thinking=thinking, spelled=spelled)
        resolve(plan.formats, plan.tools)
        return plan


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a turn: its format, and its text from its opener, without thinking.

    The text ends with the call, or with the turn where nothing closes the call.
    """

    form: CallFormat
    text: bytearray

    @property
    def tool(self) -> str | None:
        """Return the tool's name, or None if the text does not begin with one."""
        found = self._names(self.text[:MAX_NAME_BYTES])
        return found[0] if found else None

    @property
    def tools(self) -> list[str]:
        """Return all texts where the format writes a tool's name: a list may hold several calls."""
        return self._names(self.text)

    def _names(self, text: bytes | bytearray) -> list[str]:
        if not self.form.named:
            return []
        found = re.finditer(self.form.named, text.decode(errors="replace"))
        return [name for match in found for name in match.groups() if name]


@dataclass(frozen=True, slots=True, eq=False)
class TurnMarkers:
    """What is looked for in the turns of one plan; all their watches share it.

    `outside` are the markers outside calls: the `stops`, the openers of calls, the markers of
    sections, and from `first_result` on the openers of results. Of these, `own` are the ids of
    those that are tokens of their own, and `plain` those that do not count in code, by their index
    in `outside`. `begins` finds the first bytes of all that matters, and `quiet` are ids of tokens
    that are known to hold none of them; None: each watch finds them out by itself. `marker_begins`,
    `shortest`, `longest` and `all_beginnings` are those of the markers, with those of thinking.
    `line_start` stands before the first line of a turn.
    """

    vocabulary: Vocabulary
    formats: tuple[CallFormat, ...]
    tools: tuple[str, ...]
    stops: tuple[bytes, ...]
    openers: tuple[tuple[bytes, CallFormat], ...]
    turn_begin: TurnBegin
    outside: tuple[bytes, ...]
    first_result: int
    own: Mapping[int, int]
    plain: frozenset[int]
    begins: re.Pattern[bytes]
    quiet: set[int] | None
    marker_begins: re.Pattern[bytes]
    shortest: int
    longest: int
    all_beginnings: frozenset[bytes]
    line_start: bytes


@lru_cache(maxsize=MAX_MARKERS)
def markers_of(
    formats: tuple[str, ...],
    tools: tuple[str, ...],
    stop: tuple[str, ...],
    spelled: bool,
    vocabulary: Vocabulary,
) -> TurnMarkers:
    """Return what is looked for under a plan with these fields; see `WatchPlan`."""
    forms = resolve(formats, tools)
    stops = tuple(text.encode() for text in stop)
    openers = tuple((text.encode(), form) for form in forms for text in form.opens)
    sections = [text.encode() for form in forms for text in form.section if text]
    results = dict.fromkeys(text.encode() for form in forms for text in form.results)
    # A stop text comes first, so that one that is an opener too ends the turn.
    outside = (*stops, *(text for text, _ in openers), *sections, *results)
    own = {} if spelled else own_markers(forms, vocabulary)
    plain = plain_openers(forms, vocabulary)
    followed = (*MARKERS, *MARKS[: 2 * bool(plain)], b"\n") if forms else ()
    begins = beginnings([*outside, *followed])
    markers = (*outside, *(MARKERS if forms else ()))
    lines = any(form.body == "line" for form in forms)
    stops_at_lines = any(text.startswith(b"\n") for text in stops)
    ours = range(len(stops), len(outside))
    return TurnMarkers(
        vocabulary=vocabulary,
        formats=forms,
        tools=tools,
        stops=stops,
        openers=openers,
        turn_begin=TurnBegin(forms, tools),
        outside=outside,
        first_result=len(outside) - len(results),
        own={i: own[outside[i]] for i in ours if outside[i] in own},
        plain=frozenset(i for i in ours if outside[i] in plain),
        begins=begins,
        quiet=None if stops else vocabulary.known_without(begins.pattern),
        marker_begins=beginnings(markers),
        shortest=min(map(len, markers), default=0),
        longest=max(map(len, markers), default=0),
        all_beginnings=all_beginnings(markers),
        # The first line of a turn has no line break before it, but labels begin with one.
        line_start=b"\n" if lines and not stops_at_lines else b"",
    )


class TextEnd:
    """Reads a text, token by token, until it may be cut: behind a line or a sentence."""

    def __init__(self, tokens: int) -> None:
        """Look for a good place for `tokens` tokens; behind them, any whole character will do."""
        self._left = tokens
        self._tail = b""

    def found(self, data: bytes) -> bool:
        """Read the bytes of the next token; return whether the text may be cut behind it."""
        before, self._tail = self._tail, (self._tail + data)[-CHARACTER_BYTES:]
        self._left -= 1
        if data.rstrip(b" ").endswith(LINE_END):
            return True
        ended = data.rstrip(AFTER_SENTENCE)
        if ended.endswith(SENTENCE_ENDS):
            # A point behind a digit may be that of a number.
            digit = (ended[-2:-1] or before[-1:]).isdigit()
            return not (digit and ended.endswith(b"."))
        return self._left <= 0 and _is_whole(self._tail)


def _is_whole(tail: bytes) -> bool:
    """Return whether the last character is complete."""
    for length in range(1, len(tail) + 1):
        byte = tail[-length]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            needed = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length >= needed
    return False


class Watch:
    """Reads the tokens of one turn and finds the token at which the request stops."""

    def __init__(self, plan: WatchPlan, vocabulary: Vocabulary, ends: frozenset[int]) -> None:
        """`ends` are the token ids that end a turn by themselves."""
        self._markers = markers = markers_of(
            plan.formats, plan.tools, plan.stop, plan.spelled, vocabulary
        )
        self._ends = ends
        self.formats = markers.formats
        self.pauses = plan.pauses
        self._quiet: set[int] = set() if markers.quiet is None else markers.quiet
        self._called = plan.turn == "holding"
        """Whether a call of this turn has ended, so that the model may invent its result."""
        self._token = -1
        self._code = Code() if markers.plain else None
        self._thinking = Thinking(self.formats, plan.thinking)
        self._inside: CallBody | ReactCall | None = None
        self._opener = b""
        self._window = markers.line_start
        fresh = markers.turn_begin.matters and plan.turn == "fresh"
        self._head: bytes | None = b"" if fresh else None
        # Without a known opener, only the API process can tell whether the turn holds calls.
        unmarked = any(form.opens_anywhere for form in self.formats)
        self.holds_call = plan.turn == "holding" or unmarked
        self._attentive = True
        """Whether a token matters that holds none of the first bytes of what is looked for."""
        self.overshoot = b""
        """The bytes of the last token after the marker that it completed."""
        self.calls: list[Call] = []
        """The calls of the turn that have begun, as far as they were read."""
        self._reading: Call | None = None
        """What may be a call, or is one whose text goes on."""
        self._cut: TextEnd | None = None
        """Finds where the turn is cut, if it is to be."""
        self._thought = False
        """Whether the last token that was read for a cut stands within thinking."""

    def cut_soon(self, tokens: int) -> None:
        """Stop the turn at the next safe place, or behind so many tokens of text at any place.

        A safe place ends a line or a sentence, outside thinking and calls. A turn that holds a
        call, or may hold one that only the API process can tell, is not cut: it ends by itself,
        and its end is a pause in every case.
        """
        unmarked = any(form.opens_anywhere for form in self.formats)
        self._cut = None if unmarked else TextEnd(tokens)
        self.holds_call = True

    def replay(self, token_ids: Sequence[int]) -> None:
        """Read the turn's first tokens, none of which has stopped it."""
        for token_id in token_ids:
            self.feed(token_id)

    def feed(self, token_id: int) -> Verdict | None:
        """Read the next token; return its verdict, or None if the turn continues."""
        if token_id in self._ends:
            self._pass(self._window)
            if self._reading is None:
                self._read_end(token_id)
            # A call that is one line may end with its turn; other unclosed calls do not count.
            inside = self._inside
            line = inside is not None and inside.form.body == "line" and inside.begun is True
            return Verdict.CALL if self.holds_call or line else Verdict.END
        if token_id in self._quiet and not self._attentive:
            # Nearly every token takes this path.
            if self._reading is not None:
                self._read_on(self._markers.vocabulary.bytes_of(token_id))
            return None
        data = self._markers.vocabulary.bytes_of(token_id)
        if self._markers.begins.search(data) is None:
            self._quiet.add(token_id)
            if not self._attentive:
                self._read_on(data)
                return None
        self._token = token_id
        verdict = self._watch_body(data)
        self._attentive = self._is_attentive()
        return verdict

    def _read_end(self, token_id: int) -> None:
        """Note a call that the turn's last token holds as a whole, as simulated ones do."""
        data = self._markers.vocabulary.bytes_of(token_id)
        if any(opener in data for opener, _ in self._markers.openers):
            self._window = b""
            self._watch_body(data)

    def _is_attentive(self) -> bool:
        """Return whether the next token matters whatever it holds."""
        if self._inside is not None or self._window or self._head is not None:
            return True
        return self._thinking.blank or (self._code is not None and self._code.undecided)

    def first_stop(self, token_ids: Sequence[int]) -> tuple[int, Verdict] | None:
        """Feed tokens until one stops the request; return its index and the verdict."""
        for index, token_id in enumerate(token_ids):
            verdict = self.feed(token_id)
            if verdict is None and self._cut is not None and self._is_cut(self._cut, token_id):
                verdict = Verdict.CUT
            if verdict is not None:
                return index, verdict
        return None

    def _is_cut(self, end: TextEnd, token_id: int) -> bool:
        """Return whether the turn is cut behind a token that has just been read."""
        thought, self._thought = self._thought, self._thinking.inside
        if self._thinking.inside or thought:  # nothing is said yet behind the end of thinking
            return False
        found = end.found(self._markers.vocabulary.bytes_of(token_id))
        in_call = self._inside is not None or self._reading is not None or bool(self.calls)
        # What may begin a call is read to its end first.
        undecided = self._head is not None or bool(self._window.strip())
        return found and not (in_call or undecided)

    def _watch_body(self, data: bytes) -> Verdict | None:
        while data:
            rest, verdict = self._read_call(data) if self._inside else self._read_text(data)
            if verdict is not None:
                self.overshoot = rest
                return verdict
            data = rest
        return None

    def _read_text(self, data: bytes) -> tuple[bytes, Verdict | None]:
        """Read up to the next marker; return the bytes after it, and the verdict."""
        shared = self._markers
        if not self._window and shared.marker_begins.search(data) is None:
            self._pass(data)
            return b"", None
        self._window += data
        if len(self._window) < shared.shortest:
            return self._hold_back()
        markers = shared.stops if self._thinking.inside else shared.outside
        hit = first_hit(self._window, markers)
        thought = self._thinking.next(self._window)
        if thought is not None and (hit is None or thought.end < hit.end):
            return self._read_thought(thought), None
        if hit is None:
            return self._hold_back()
        if shared.own.get(hit.marker, self._token) != self._token:
            # Other tokens spell the marker, so the model only mentions it.
            return self._pass_byte(hit.start), None
        self._pass(self._window[: hit.start])
        if hit.marker >= shared.first_result:
            return self._read_result(hit)
        self._window = self._window[hit.start :]
        if self._code is not None and hit.marker in shared.plain and self._code.holds(self._window):
            return self._pass_byte(0), None
        rest, self._window = self._window[hit.end - hit.start :], b""
        return rest, Verdict.STOP if self._thinking.inside else self._read_marker(hit.marker)

    def _hold_back(self) -> tuple[bytes, None]:
        """Read the window as text, except for bytes at its end that may grow into a marker."""
        window, shared = self._window, self._markers
        for found in shared.begins.finditer(window, max(0, len(window) - shared.longest + 1)):
            if window[found.start() :] in shared.all_beginnings:
                self._window = window[found.start() :]
                self._pass(window[: found.start()])
                return b"", None
        self._window = b""
        self._pass(window)
        return b"", None

    def _read_thought(self, hit: Hit) -> bytes:
        """Read up to a marker of thinking, and past it if it counts; return the bytes after it."""
        shared = self._markers
        self._pass(self._window[: hit.start])
        self._window = self._window[hit.start :]
        if not self._thinking.pass_marker(hit):
            return self._pass_byte(0)
        rest, self._window = self._window[hit.end - hit.start :], b""
        if not self._thinking.inside:
            self._window = shared.line_start
            self._code = Code() if shared.plain else None
            self._head = b"" if shared.turn_begin.matters else None
        return rest

    def _read_result(self, hit: Hit) -> tuple[bytes, Verdict | None]:
        """Stop at the opener of a result, where the model has called and begins a line with it."""
        self._window = self._window[hit.start :]
        if not (self._called and self._thinking.blank):
            return self._pass_byte(0), None
        rest, self._window = self._window[hit.end - hit.start :], b""
        return rest, Verdict.CALL

    def _pass_byte(self, at: int) -> bytes:
        """Read up to and including the byte at `at` as text; return the bytes after it."""
        window, self._window = self._window, b""
        self._pass(window[: at + 1])
        return window[at + 1 :]

    def _read_marker(self, marker: int) -> Verdict | None:
        """Act on the marker outside calls with this index; return the verdict."""
        shared = self._markers
        if marker < len(shared.stops):
            return Verdict.STOP
        marker -= len(shared.stops)
        if marker >= len(shared.openers):
            self._thinking.passed_call()
            return None
        opener, form = shared.openers[marker]
        self._opener = opener
        self._reading = Call(form, bytearray(opener))
        if form.closes is not None or form.body == "json":
            line = form.body == "line"
            self._inside = ReactCall(opener, shared.tools) if line else CallBody(form)
        if self._inside is None or self._inside.begun:
            self._begin_call(form)
        return None

    def _begin_call(self, form: CallFormat) -> None:
        self._head = None
        self.holds_call = self.holds_call or form.pause == "turn"
        if self._reading is not None:
            self.calls.append(self._reading)

    def _read_on(self, data: bytes) -> None:
        """Add text that goes on behind the opener of a call that nothing closes."""
        if self._reading is not None and not self._thinking.inside:
            self._reading.text.extend(data)

    def awaited(self) -> tuple[str | None, PauseHint | None]:
        """Return the name under which the pause at the turn's calls is learned, and its hint.

        It is that of the last tool called. If a turn has several calls, one that waits for a
        person determines the duration of the pause.
        """
        tool = self.calls[-1].tool if self.calls else None
        if self.calls and any(hint.person for hint in self.pauses.values()):
            named = {name for call in self.calls for name in call.tools}
            tool = slowest(named, self.pauses) or tool
        hint = self.pauses.get(tool) if tool is not None else None
        return (tool, None) if hint is None or tool is None else (hint.key(tool), hint)

    def _pass(self, data: bytes) -> None:
        """Record text outside calls that holds no marker."""
        self._thinking.passed(data)
        if self._thinking.inside:
            return
        self._read_on(data)
        if self._code is not None:
            self._code.passed(data)
        if self._head is None:
            return
        # Some formats count only as the first text of a turn.
        self._head = head = (self._head + data).lstrip()
        begins = self._markers.turn_begin.is_call(head)
        if begins is None:
            return
        self._head = None
        if begins:
            self.holds_call = True
            self._thinking.stop()
            tools = self._markers.tools
            form = next(one for one in self.formats if TurnBegin([one], tools).is_call(head))
            self._reading = Call(form, bytearray(head))
            self.calls.append(self._reading)

    def _read_call(self, data: bytes) -> tuple[bytes, Verdict | None]:
        """Read up to the end of the call; return the bytes after it, and the verdict."""
        assert self._inside is not None and self._reading is not None
        undecided = self._inside.begun is None
        self._reading.text.extend(data)
        rest = self._inside.feed(data)
        if undecided and self._inside.begun:
            self._begin_call(self._inside.form)
        if rest is None:
            return b"", None
        reading, self._reading = self._reading, None
        if not self._inside.begun:
            mention, self._inside = self._inside.mention, None
            self._pass(self._opener + mention)
            return rest, None
        if rest:
            del reading.text[-len(rest) :]
        pause = self._inside.form.pause
        self._inside = None
        self._called = True
        self._thinking.passed_call()
        return rest, Verdict.CALL if pause == "call" else None


def _is_text(text: object) -> bool:
    """Return whether this is a text with at least one character, and without half ones."""
    return isinstance(text, str) and bool(text) and not SURROGATE.search(text)
