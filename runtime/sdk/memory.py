"""`Memory`: what a session knows of itself, in this process and in its store."""

import asyncio
import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import UsageError, usage_errors
from caesura.runtime.events import (
    CallGoesOn,
    ModelChanged,
    RunEvent,
    Steered,
    ToolReturned,
    TurnEnded,
    Usage,
)
from caesura.runtime.journal.record import BadJournal
from caesura.runtime.run.fold import Transcript
from caesura.runtime.run.media import Content
from caesura.runtime.sdk.keeper import Keeper, reopened, retold
from caesura.runtime.sdk.record import End, SavedRun, SessionRecord, made_for
from caesura.runtime.sdk.sessions import Place, Sessions, checked_id, store_of
from caesura.runtime.trajectories.recorder import TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Trajectory
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.tools.context import CallLog
from caesura.tools.people import Pending, People
from caesura.tools.registry import Registry

LOG = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A session of the engine."""

    session: EngineSession
    fed: int
    """How many messages it knows, and is not sent again."""
    asked: int
    """How many messages its first turn has."""
    held_tokens: int = 0
    """How many tokens of the conversation it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """What a session begins with. `record` is what is known of it without its store."""

    messages: Sequence[Message] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    store: Sessions | None = None
    record: SessionRecord = field(default_factory=SessionRecord)
    recorder: TrajectoryRecorder | None = None
    """What knows the tokens of the session that it was forked from."""

    @property
    def owner(self) -> str:
        """Whose approvals count for the session in another process, if no user is named."""
        return "" if self.store is None else f"session {self.id}"

    def branch(self, record: SessionRecord, recorder: TrajectoryRecorder | None = None) -> "Begin":
        """Return what a branch begins with; `recorder` is the session's, `record` a copy."""
        name = f"{self.id}-{uuid.uuid4().hex[:8]}"
        forked = None if recorder is None else recorder.forked(name)
        return Begin(id=name, store=self.store, record=record, recorder=forked)


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def checked_history(messages: object) -> tuple[Message, ...]:
    """Return messages in OpenAI's form. Raises `UsageError` for anything else."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise UsageError(
            f"a history is a list of messages, got {messages!r:.80}: write"
            ' [{"role": "user", "content": ...}, ...], or give the text to session.run(...)'
        )
    told = tuple(messages)
    for at, each in enumerate(told):
        role = each.get("role") if isinstance(each, Mapping) else None
        if role not in _ROLES:
            raise UsageError(
                f"message {at} of the history has no role of {', '.join(_ROLES)}: {each!r:.80}"
            )
    return told


def begin_of(messages: Sequence[Message], name: object, store: object, state: object) -> Begin:
    """Return what a session begins with. Raises `UsageError`."""
    record = SessionRecord()
    if state is not None:
        if messages:
            raise UsageError(
                f"a state and {len(messages)} messages are two histories: give one of them"
            )
        record = _read_state(state)
    found = store_of(store)
    told = checked_history(messages)
    if name is None:
        return Begin(messages=told, store=found, record=record)
    return Begin(messages=told, id=checked_id(name), store=found, record=record)


def _read_state(state: object) -> SessionRecord:
    record = SessionRecord()
    try:
        entries = json.loads(state) if isinstance(state, str) else None
        if not isinstance(entries, list):
            raise BadJournal(f"it begins with {str(state)[:40]!r}")
        record.read([json.dumps(entry) for entry in entries], "the state")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"state must be the text of `session.state()`: {error}") from None
    return record


class Memory:
    """The history of one session: its messages, its tokens, and its place in a store."""

    def __init__(self, begin: Begin, people: People, *, trajectory: bool = False) -> None:
        """Create it; with `trajectory` it records all tokens, also those that are forgotten."""
        self._begin = begin
        self._people = people
        self._place: Place | None = None
        self._is_read = begin.store is None
        self._left: tuple[Pending, ...] = ()
        self._recorder = begin.recorder
        if trajectory and self._recorder is None:
            self._recorder = TrajectoryRecorder(begin.id)
            retold(begin.record, self._recorder)
        self.keeper = Keeper(begin.record, self._recorder)
        self.transcript = Transcript(begin.record.messages or begin.messages)
        self._earlier = begin.record.usage
        self.is_continued = bool(begin.record.messages)
        """Whether the session was begun elsewhere."""
        self.is_stale = False
        """Whether the session of the engine is not of these messages any more."""

    # -- what is known ---------------------------------------------------------------------------

    @property
    def record(self) -> SessionRecord:
        """The record, which lacks what the run under way has not ended yet."""
        return self.keeper.record

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history without the turn under way."""
        return self.transcript.messages

    @property
    def usage(self) -> Usage:
        """That of all ended turns."""
        return self._earlier + self.transcript.total

    @property
    def is_told(self) -> bool:
        """Whether the history begins with instructions."""
        return bool(self.messages) and self.messages[0]["role"] == "system"

    @property
    def has_open_calls(self) -> bool:
        """Whether the last turn has calls without results."""
        return self.transcript.has_open_calls

    @property
    def is_kept(self) -> bool:
        """Whether a store has the session, or had it until this process closed it."""
        return self._begin.store is not None and self._is_read

    @property
    def left(self) -> tuple[Pending, ...]:
        """What an earlier process has asked people for the session."""
        return self._left

    @property
    def trouble(self) -> str | None:
        """Why the session cannot be saved now; None: it can, or has no store."""
        return None if self._place is None else self._place.trouble

    def check_read(self) -> None:
        """Raise `UsageError` for a session of which nothing is known before its store is asked."""
        if not (self._is_read or self.messages):
            raise UsageError(
                f"the session {self._begin.id!r} was not read from its store yet: use it in"
                " `async with agent.session(...) as session`"
            )

    # -- the store -------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the session from its store, once. Raises `UsageError`."""
        store, name = self._begin.store, self._begin.id
        if store is None or self._is_read:
            return
        place = await store.take(name, self.record.about)
        try:
            if place.bodies and self.messages:
                raise UsageError(
                    f"the session {name!r} is in the store, with a history of its own: open it"
                    " without another one, or delete it there"
                )
            if place.bodies:
                with usage_errors(BadJournal):
                    self.record.read(place.bodies, name)
        except BaseException:
            await place.give_back()
            raise
        self._place, self._is_read = place, True
        self.keeper.attach(place.journal, is_new=not place.bodies)
        if place.bodies:
            if self._recorder is not None:
                retold(self.record, self._recorder)
            self._look_at_record()
            self.is_continued = bool(self.messages)
        self._people.outlive(name)
        if self.record.under_way is not None:
            self._left = tuple(each for each in await self._people.listed() if each.session == name)

    async def save(self) -> None:
        """Return when all is saved, or the log has told why not. Raises `UsageError`."""
        if self._place is not None:
            await self._place.save()

    async def close(self) -> None:
        """Let another process have the session."""
        place, self._place = self._place, None
        if place is not None:
            await asyncio.shield(place.give_back())

    # -- other histories -------------------------------------------------------------------------

    def state(self) -> str:
        """Return all that is known as JSON text."""
        self._tell()
        return json.dumps([json.loads(body) for body in self.record.bodies()], ensure_ascii=False)

    @property
    def has_tokens_under_way(self) -> bool:
        """Whether there are tokens of a run under way, with which another session may go on."""
        run = self.record.under_way
        return run is not None and bool(run.turns) and not run.has_media

    def branch(self) -> Begin:
        """Return what a session begins with that goes on from here, by itself.

        The calls of a run under way that have no result are not the branch's.
        """
        self._tell()
        copied = self.record.copy()
        if (run := copied.under_way) is not None:
            run.dispatched = [call for call in run.dispatched if call in run.results]
        return self._begin.branch(copied, self._recorder)

    def trajectory(self) -> Trajectory:
        """Return all tokens that were computed. Raises `UsageError` if they were not recorded."""
        if self._recorder is None:
            raise UsageError(
                f"the session {self._begin.id!r} records no trajectory: open it from an"
                " Agent(..., trajectories=True)"
            )
        return self._recorder.trajectory()

    def edit(self, messages: Sequence[Message]) -> None:
        """Replace the history; the tokens before the first run that differs stay.

        Raises `UsageError` for what is no history.
        """
        messages = checked_history(messages)
        pairs = zip(self.messages, messages, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        if same is None:
            same = min(len(self.messages), len(messages))
        self._keep_first(same)
        self.keeper.told(messages)
        self._look_at_record()

    def instruct(self, text: str | None) -> None:
        """Begin with other instructions, or with none; all is rendered again, the turns stay."""
        self._tell()
        head: list[Message] = [] if text is None else [{"role": "system", "content": text}]
        moved, runs = len(head) - self.is_told, list(self.record.runs)
        messages = [*head, *self.messages[self.is_told :]]
        self.keeper.rewind(0, 0 if moved else len(runs))
        self.keeper.told(messages)
        if moved:
            for run in runs:
                self.keeper.move(run, moved)
        self._look_at_record()

    def rewind(self, turns: int) -> None:
        """Forget the last prompts and what followed them. Raises `UsageError`."""
        begins = sorted({run.begins for run in self.record.runs if not run.part})
        if type(turns) is not int or not 1 <= turns <= len(begins):
            raise UsageError(
                f"the session has {len(begins)} turn(s) to forget, got {turns!r}; where it began"
                " with messages, assign other ones to `session.messages`"
            )
        self._keep_first(begins[-turns])

    def _keep_first(self, length: int) -> None:
        self._tell()
        self.keeper.rewind(length, self.record.runs_within(length))
        self._look_at_record()

    def _look_at_record(self) -> None:
        self.transcript, self._earlier = Transcript(self.record.messages), self.record.usage
        self.is_stale = True

    def _tell(self) -> None:
        if self.record.under_way is None:
            self.keeper.told(self.messages)

    # -- runs ------------------------------------------------------------------------------------

    def unended(self, prompt: Content | None) -> SavedRun | None:
        """Return the run that has not ended, with which this prompt goes on, if there is one.

        Raises `UsageError` for another prompt than that run's, and for none without such a run.
        """
        run = self.record.under_way
        if run is None:
            if prompt is None:
                raise UsageError(
                    "no run of this session has to go on, so that the prompt must be a text or a"
                    f" list of parts, got {type(prompt).__name__}"
                )
            return None
        first = next(each for each in reversed(self.record.runs) if not each.part)
        asked = self.record.messages[first.begins]["content"]
        if prompt is not None and prompt != asked:
            raise UsageError(
                f"a run of this session has not ended, whose prompt was {str(asked)[:80]!r}: go on"
                " with it by session.run(), or drop it by session.rewind()"
            )
        return run

    async def open(
        self,
        engine: Engine,
        spec: SessionSpec,
        sampling: Sampling,
        registry: Registry,
        unended: SavedRun | None,
    ) -> Opened:
        """Open a session of the engine: on the tokens that are known, else for all messages.

        The registry has the session's tools. An unended run goes on where it is.
        """
        mark = made_for(engine.model, spec, self.messages)
        self._left = ()
        if self._recorder is not None:
            self._recorder.uses(engine.model)
        if unended is not None and unended.goes_on_with(mark):
            session = engine.open(spec, self.keeper.replaying(unended))
            self.transcript = Transcript(self.record.messages[: unended.asked])
            self._earlier = self.record.usage
            return Opened(session, 0, unended.asked)
        if unended is not None:
            self._settle(unended)
        whole = self.record.last_whole(mark)
        if whole is not None and whole.ends is not None:
            again = await reopened(engine, spec, self.keeper, whole, sampling, registry)
            if again is not None:
                return Opened(again[0], whole.ends, whole.asked, again[1])
        if self.is_continued and self.record.runs:
            LOG.warning(
                "the messages of the session %s are rendered again: its tokens are not of this"
                " model with these tools and instructions, or they are not known",
                self._begin.id,
            )
        return Opened(engine.open(spec, self.keeper.fresh()), 0, len(self.messages))

    def calls(self) -> CallLog:
        """Return the log of the calls of the run under way."""
        return self.keeper.calls(self.record.runs[-1], self._people)

    def waiting_calls(self) -> list[str]:
        """Return the names of the tools whose calls have not begun to run."""
        return [] if self.record.under_way is None else self.record.waiting_calls()

    def take(self, event: RunEvent) -> None:
        """Add an event of the run under way."""
        self.transcript.take(event)
        if isinstance(event, TurnEnded | CallGoesOn | ToolReturned | Steered):
            self.keeper.told(self.messages)
        if isinstance(event, ModelChanged):
            self.keeper.lose_tokens()
            if self._recorder is not None:
                self._recorder.lose(f"{event.model} went on with it, whose tokens are not logged")

    def forget_left(self, item_id: str) -> None:
        """Forget an item of an earlier process, which has an answer now."""
        self._left = tuple(each for each in self._left if each.id != item_id)

    def begin_run(self, made_for: str, fed: int, *, is_retry: bool, of: SavedRun | None) -> None:
        """Begin a run whose prompt is the last message, or go on with one that has no tokens."""
        self.keeper.told(self.messages)
        begins = len(self.messages) - 1 if of is None else of.begins
        part = (self.record.runs[-1].part + 1) if is_retry else 0 if of is None else of.part
        self.keeper.begin_run(made_for, begins=begins, fed=fed, part=part)

    def _settle(self, run: SavedRun) -> None:
        """End a run without its tokens: its open calls are answered as far as results are known."""
        self.keeper.told([*self.record.messages, *self.record.answers(run)])
        self.keeper.end_run(End(len(self.record.messages), True, self.record.usage))
        self._look_at_record()
        self.is_stale = False

    def end_run(self, was_cut: bool) -> None:
        """End the run."""
        self.keeper.told(self.messages)
        if self.record.under_way is not None:
            self.keeper.end_run(End(len(self.messages), was_cut, self.usage))

    def leave_no_trace(self, messages: int) -> None:
        """Forget a run before whose first output something failed."""
        self.transcript.rewind(messages)
        if len(self.record.messages) > messages:
            self.keeper.rewind(messages, self.record.runs_within(messages))

    def leave_under_way(self) -> None:
        """Show the history up to the last whole turn of a run that goes on later."""
        self._look_at_record()
