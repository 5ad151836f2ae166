"""What is known of a session: its messages, its tokens, and the run under way.

A record grows by entries, which are also what a store keeps: whoever takes them in order has the
same record. The tokens are those that the engine was sent and sampled (`LoggedTurn`), by runs. So
a session goes on from them in any process, and behind any of its runs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from caesura.runtime.events import Usage
from caesura.runtime.journal.record import BadJournal, Kind, adapter, begun, encoded, of_kind
from caesura.runtime.run.fold import (
    CANCELLED,
    acknowledgement,
    digest,
    late_message,
    tool_message,
)
from caesura.scheduler.messages import LATE, Message, SessionSpec
from caesura.scheduler.session_log import LoggedTurn, TurnOutcome
from caesura.tools.result import ToolResult

VERSION = 1


@dataclass(slots=True)
class SavedTurn:
    """A turn. One that replaces the context holds only what differs from it."""

    turn: LoggedTurn
    kept: int | None = None
    """How many tokens of the context before stay; None: all, for a turn that replaces nothing."""

    def appended_to(self, context: Sequence[int]) -> list[int]:
        """Return the context with the tokens that the turn was sent."""
        return [*context[: self.kept], *self.turn.appended]


@dataclass(slots=True)
class SavedRun:
    """A run, from its prompt to its answer."""

    key: str
    """What the ids of its calls are made from."""
    made_for: str
    """A digest of the model and the tools, for which its tokens are right."""
    begins: int
    """The place of its prompt among the messages."""
    fed: int
    """The first message that it told the engine; 0: it began a session of the engine."""
    asked: int
    """How many messages there were when it began."""
    part: int = 0
    """How often its prompt was told before in another form: a model that tries again is told."""
    turns: list[SavedTurn] = field(default_factory=list)
    dispatched: list[str] = field(default_factory=list)
    """The calls whose tools have begun to run."""
    results: dict[str, ToolResult] = field(default_factory=dict)
    late: list[list[str]] = field(default_factory=list)
    """The calls in the background whose results the model was told, by the places where it was."""
    said: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """What the user said within the run, by the turn behind which it was told."""
    has_media: bool = False
    """Whether tokens are missing, since those of pictures and sounds say nothing alone."""
    ends: int | None = None
    """How many messages there were at its end; None while it is under way."""
    was_cut: bool = False
    """Whether it ended before its answer, so that its tokens are not those of the messages."""

    def goes_on_with(self, wanted: str) -> bool:
        """Whether a session made for `wanted` can go on from the run's tokens."""
        return bool(self.turns) and not self.has_media and self.made_for == wanted

    def context_behind(self, context: Sequence[int]) -> list[int]:
        """Return the context after the run; `context` is the one before."""
        for saved in self.turns:
            context = [*saved.appended_to(context), *saved.turn.sampled]
        return list(context)

    @property
    def unknown(self) -> list[str]:
        """The calls that have begun and have no result."""
        return [call for call in self.dispatched if call not in self.results]


@dataclass(frozen=True, slots=True)
class Begin:
    """How a run began; the value of its first entry."""

    key: str
    made_for: str
    begins: int
    fed: int
    asked: int
    part: int = 0
    dispatched: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended, and the session's usage so far."""

    ends: int
    was_cut: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Rewound:
    """How many messages and runs are left."""

    messages: int
    runs: int


def made_for(model: str, spec: SessionSpec, messages: Sequence[Message]) -> str:
    """Return a digest of what a prompt's tokens depend on: the model, tools and instructions."""
    told: list[Any] = [model, spec.adapter, dict(spec.template), spec.tool_choice]
    if messages and messages[0]["role"] == "system":
        told.append(messages[0]["content"])
    return digest([{"made for": told, "tools": [repr(each) for each in spec.known_tools]}])


class SessionRecord:
    """The record of one session."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """The history without the turn under way, in OpenAI's form."""
        self.runs: list[SavedRun] = []
        self.usage = Usage()
        """That of the runs that have ended."""

    @property
    def under_way(self) -> SavedRun | None:
        """The run that has not ended, if there is one."""
        return self.runs[-1] if self.runs and self.runs[-1].ends is None else None

    # -- growing ---------------------------------------------------------------------------------

    def take(self, kind: Kind, value: Any) -> None:
        """Add an entry, whose value is one of ours; `read` takes one of JSON."""
        match kind:
            case "messages":
                self.messages.extend(value)
            case "run":
                begin = (value.key, value.made_for, value.begins, value.fed, value.asked)
                called = list(value.dispatched)
                self.runs.append(SavedRun(*begin, value.part, dispatched=called))
            case "rewound":
                del self.messages[value.messages :]
                del self.runs[value.runs :]
            case "ended":
                run = self.runs[-1]
                run.ends, run.was_cut, self.usage = value.ends, value.was_cut, value.usage
            case _:
                self._take_of_run(self.runs[-1], kind, value)

    def _take_of_run(self, run: SavedRun, kind: Kind, value: Any) -> None:
        match kind:
            case "turn":
                run.has_media = run.has_media or value.turn.has_media
                run.turns.append(value)
            case "tokens":
                run.turns[-1].turn.sampled.extend(value)
            case "outcome":
                run.turns[-1].turn.outcome = value
            case "call":
                run.dispatched.append(value)
            case "result":
                run.results[value.call_id] = value
            case "late":
                run.late.append(value)
            case "said":
                run.said[value[0]] = list(value[1])
            case _:
                raise LookupError(f"there is no entry of kind {kind!r}")

    def read(self, bodies: Sequence[str], name: str) -> None:
        """Take the entries of a store. Raises `BadJournal` for what is no session."""
        place = 0
        try:
            for place, body in enumerate(bodies):
                kind, value = json.loads(body)
                if place == 0:
                    self._read_begin(kind, value, name)
                elif kind not in ("resumed", "left"):
                    known = _KINDS.get(kind)
                    self.take(kind, value if known is None else of_kind(known, value))
        except BadJournal:
            raise
        except (ValidationError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise BadJournal(
                f"entry {place} of the session {name!r} cannot be read: {str(error)[:200]}"
            ) from None

    def _read_begin(self, kind: str, value: Any, name: str) -> None:
        about = value["about"] if kind == "begin" else None
        if not isinstance(about, dict) or about.get("session") != VERSION:
            raise BadJournal(f"{name!r} is no session of version {VERSION}")
        self.usage = of_kind(Usage, about["usage"])

    # -- written ---------------------------------------------------------------------------------

    @property
    def about(self) -> dict[str, Any]:
        """The value with which the entries begin."""
        return {"session": VERSION, "usage": adapter(Usage).dump_python(self.usage, mode="json")}

    def entries(self) -> Iterator[tuple[Kind, Any]]:
        """Yield entries, behind the first one, that make the same record."""
        if self.messages:
            yield "messages", self.messages
        for run in self.runs:
            begin = (run.key, run.made_for, run.begins, run.fed, run.asked, run.part)
            yield "run", Begin(*begin, dispatched=run.dispatched)
            for turn in run.turns:
                yield "turn", turn
            for result in run.results.values():
                yield "result", result
            for late in run.late:
                yield "late", late
            for said in run.said.items():
                yield "said", list(said)
            if run.ends is not None:
                yield "ended", End(run.ends, run.was_cut, self.usage)

    def bodies(self) -> list[str]:
        """Return the entries as JSON texts."""
        return [begun(self.about), *(encoded(kind, value) for kind, value in self.entries())]

    def copy(self) -> "SessionRecord":
        """Return the same record, which grows by itself."""
        copied = SessionRecord()
        copied.read(self.bodies(), "a copy")
        return copied

    # -- going on --------------------------------------------------------------------------------

    def context_before(self, run: SavedRun) -> list[int]:
        """Return the tokens of the context when a run began."""
        chain: list[SavedRun] = []
        while run.fed:
            run = self._continued_by(run)
            chain.append(run)
        context: list[int] = []
        for each in reversed(chain):
            context = each.context_behind(context)
        return context

    def context(self) -> list[int]:
        """Return the tokens of the context behind the last turn."""
        if not self.runs:
            return []
        return self.runs[-1].context_behind(self.context_before(self.runs[-1]))

    def _continued_by(self, run: SavedRun) -> SavedRun:
        """Return the run whose tokens a run continues; runs between were cut."""
        place = next(at for at, each in enumerate(self.runs) if each is run)
        earlier = [each for each in self.runs[:place] if each.ends == run.fed and not each.was_cut]
        if not earlier:
            raise LookupError(f"no run ends at message {run.fed}")
        return earlier[-1]

    def last_whole(self, wanted: str) -> SavedRun | None:
        """Return the last run behind which a session made for `wanted` can go on from tokens."""
        for run in reversed(self.runs):
            if run.was_cut or run.ends is None:
                continue
            return run if run.goes_on_with(wanted) else None
        return None

    def turns_of(self, run: SavedRun) -> list[LoggedTurn]:
        """Return the turns of a run, the first of which has the whole context before."""
        context = self.context_before(run)
        turns: list[LoggedTurn] = []
        for saved in run.turns:
            turn, whole = saved.turn, saved.appended_to(context)
            replaces = turn.replaces or bool(run.fed and not turns)
            appended = whole if replaces else list(turn.appended)
            about = (turn.kind, replaces, turn.spelled_tokens, turn.follow_up, turn.has_media)
            turns.append(LoggedTurn(appended, *about, list(turn.sampled), turn.outcome))
            context = [*whole, *turn.sampled]
        return turns

    def results_of(self, run: SavedRun) -> dict[str, ToolResult]:
        """Return the results of a run's calls, also those that were cancelled with it."""
        told = {
            str(message["tool_call_id"]): ToolResult(
                str(message["tool_call_id"]),
                str(message.get("name")),
                str(message["content"]),
                *(None, 0.0, 0.0, 0),
            )
            for message in self.messages[run.asked : run.ends]
            if message["role"] == "tool" and not (message.get(LATE) or _goes_on(message))
        }
        return run.results | told

    def open_calls(self) -> list[Message]:
        """Return the calls of the last turn that no message answers, in OpenAI's form."""
        answered = {message.get("tool_call_id") for message in self.messages}
        calling = next((each for each in reversed(self.messages) if each.get("tool_calls")), {})
        return [call for call in calling.get("tool_calls") or () if call["id"] not in answered]

    def answers(self, run: SavedRun) -> list[Message]:
        """Return messages that answer the open calls: by their results, else as cancelled."""
        results: Mapping[str, ToolResult] = run.results

        def content(call_id: str) -> str:
            return results[call_id].content if call_id in results else CANCELLED

        told = {each["tool_call_id"] for each in self.messages if each.get(LATE)}
        return [
            *(
                tool_message(call["id"], call["function"]["name"], content(call["id"]))
                for call in self.open_calls()
            ),
            *(
                late_message(each["tool_call_id"], each["name"], content(each["tool_call_id"]))
                for each in self.messages[run.asked :]
                if _goes_on(each) and each["tool_call_id"] not in told
            ),
        ]

    def waiting_calls(self) -> list[str]:
        """Return the names of the open calls whose tools have not begun to run."""
        run = self.runs[-1]
        return [
            str(call["function"]["name"])
            for call in self.open_calls()
            if call["id"] not in run.results and call["id"] not in run.dispatched
        ]

    def runs_within(self, length: int) -> int:
        """Return how many of the runs end within the first messages."""
        kept = [run for run in self.runs if run.ends is not None and run.ends <= length]
        return len(kept)


def _goes_on(message: Message) -> bool:
    """Return whether a message tells the model that a call goes on in the background."""
    if message["role"] != "tool" or message.get(LATE):
        return False
    told = acknowledgement(str(message["tool_call_id"]), str(message.get("name")))
    return bool(message["content"] == told)


_KINDS: dict[str, Any] = {
    "messages": list[dict[str, Any]],
    "run": Begin,
    "turn": SavedTurn,
    "tokens": list[int],
    "outcome": TurnOutcome,
    "call": str,
    "result": ToolResult,
    "late": list[str],
    "said": tuple[int, list[dict[str, Any]]],
    "ended": End,
    "rewound": Rewound,
}
