"""`Keeper`: writes what a session does to its record and its store, and replays it.

It is the log of the engine's session and of the calls. So a session goes on from its tokens: the
engine reads again what the last run was sent and sampled, and computes nothing.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

from caesura.runtime.engine import Engine, EngineSession
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.events import TurnEnded
from caesura.runtime.journal.journaled_run import Before, JournaledCalls
from caesura.runtime.journal.record import BadJournal, Kind
from caesura.runtime.journal.run_journal import RunJournal
from caesura.runtime.run import loop
from caesura.runtime.run.context import RunContext
from caesura.runtime.run.fold import Transcript
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.record import (
    Begin,
    End,
    Rewound,
    SavedRun,
    SavedTurn,
    SessionRecord,
)
from caesura.runtime.trajectories.recorder import Told, TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Source
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import LoggedTurn, SampledFacts, TurnOutcome
from caesura.tools.context import ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.people import People
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.tool import Tool

LOG = logging.getLogger(__name__)


class Keeper:
    """Keeps what one session does. It is the `SessionLog` of the engine's session.

    `record` is what was known of the session before. A `recorder` gets all turns too, and forgets
    none of them.
    """

    def __init__(self, record: SessionRecord, recorder: TrajectoryRecorder | None = None) -> None:
        self.record = record
        self._recorder = recorder
        self.key = ""
        """What the ids of the present run's calls are made from."""
        self.turns: Sequence[LoggedTurn] = ()
        """What the engine's next session replays."""
        self._journal: RunJournal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_frozen = False
        self._name = uuid.uuid4().hex[:12]

    def attach(self, journal: RunJournal, is_new: bool) -> None:
        """Write to a journal too from now on; a new one gets the whole record."""
        self._journal = journal
        if is_new:
            for kind, value in self.record.entries():
                journal.add(kind, value)

    def freeze(self) -> None:
        """Keep nothing of what comes: another process goes on from here."""
        self._is_frozen = True

    def thaw(self) -> None:
        """Keep what comes again."""
        self._is_frozen = False

    # -- what the session does -------------------------------------------------------------------

    def told(self, messages: Sequence[Message]) -> None:
        """Keep the messages behind those that are known."""
        if new := list(messages[len(self.record.messages) :]):
            self.add("messages", new)

    def begin_run(self, made_for: str, *, begins: int, fed: int, part: int = 0) -> None:
        """Begin a run, whose prompt is the message at `begins`."""
        self.key = f"{self._name}.{len(self.record.runs)}"
        asked = len(self.record.messages)
        self.add("run", Begin(self.key, made_for, begins, fed, asked, part))

    def lose_tokens(self) -> None:
        """Note that the tokens of the run under way are not known from here on."""
        self.add("turn", SavedTurn(LoggedTurn([], has_media=True)))

    def end_run(self, end: End) -> None:
        """End the run."""
        self.add("ended", end)

    def move(self, run: SavedRun, by: int) -> None:
        """Keep a run again whose messages have moved, without its tokens."""
        begins, asked, ends = run.begins + by, run.asked + by, (run.ends or 0) + by
        self.add("run", Begin(run.key, run.made_for, begins, 0, asked, run.part))
        self.add("ended", End(ends, True, self.record.usage))

    def rewind(self, messages: int, runs: int) -> None:
        """Forget all but the first messages and runs."""
        self.add("rewound", Rewound(messages, runs))

    def calls(self, run: SavedRun, people: People) -> JournaledCalls:
        """Return the log of a run's calls, which knows those that were made before."""
        late, said = [list(each) for each in run.late], dict(run.said)
        before = Before(dict(run.results), run.unknown, late, said, len(run.turns))
        return JournaledCalls(self, people, before, "process")

    # -- the log of calls ------------------------------------------------------------------------

    def add(self, kind: Kind, value: Any) -> None:
        """Add an entry to the record and to the store."""
        if not self._is_frozen:
            self.record.take(kind, value)
            if self._journal is not None:
                self._journal.add(kind, value)

    def result(self, result: ToolResult) -> None:
        """Keep the result of a call."""
        self.add("result", result)

    async def recorded(self) -> None:
        """Return when the store has all. Raises `NotRecorded`."""
        if self._journal is not None:
            await self._journal.recorded()

    # -- the log of the engine's session ---------------------------------------------------------

    @property
    def takes_facts(self) -> bool:
        """Whether it wants what is known of sampled tokens: with a recorder."""
        return self._recorder is not None

    def begin(self, turn: LoggedTurn) -> None:
        """Keep a turn; of one that replaces the context, what differs from it."""
        self._here(self._begin, turn)

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Keep tokens of the last turn; what is known of them is the recorder's alone."""
        self._here(self._sampled, list(tokens), facts)

    def end(self, outcome: TurnOutcome) -> None:
        """Keep the end of the last turn."""
        self._here(self._end, outcome)

    def _here(self, keep: Callable[..., None], *values: Any) -> None:
        """Keep something on the session's event loop; the engine may be on another one."""
        if self._loop is None or self._loop is _running():
            keep(*values)
        else:
            with suppress(RuntimeError):  # the loop has ended, and the session with it
                self._loop.call_soon_threadsafe(keep, *values)

    def _begin(self, turn: LoggedTurn) -> None:
        if self._recorder is not None and not self._is_frozen:
            run, messages = self.record.runs[-1], self.record.messages
            roles = [each["role"] for each in messages[-1:]]
            # Within its first sentence a run still has the prompt as its last message.
            steered = len(messages) > run.asked and roles == ["user"]
            is_result = bool(run.turns) or "tool" in roles
            source: Source = "tool" if is_result and not steered else "user"
            self._recorder.begin(turn, source, time.time(), Told.of(self.record.messages))
        kept = None
        if turn.has_media:
            turn = replace(turn, appended=[])
        elif turn.replaces:
            same = zip(self.record.context(), turn.appended, strict=False)
            kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))
            turn = replace(turn, appended=list(turn.appended[kept:]))
        self.add("turn", SavedTurn(replace(turn, sampled=[]), kept))

    def _sampled(self, tokens: Sequence[int], facts: SampledFacts | None) -> None:
        if not self._is_frozen:
            if self._recorder is not None:
                self._recorder.sampled(tokens, facts)
            self.record.take("tokens", tokens)
            if self._journal is not None:
                self._journal.sampled(tokens)

    def _end(self, outcome: TurnOutcome) -> None:
        if self._recorder is not None and not self._is_frozen:
            self._recorder.end(outcome, time.time())
        self.add("outcome", outcome)

    def replaying(self, run: SavedRun) -> "Keeper":
        """Let the engine's next session replay a run; return the log for it."""
        self.key, self.turns = run.key, self.record.turns_of(run)
        self._loop = _running()
        if self._recorder is not None:
            before = self.record.context_before(run)
            self._recorder.stands_at(run.context_behind(before))
        return self

    def fresh(self) -> "Keeper":
        """Return the log for a session of the engine that replays nothing."""
        self.turns, self._loop = (), _running()
        if self._recorder is not None:
            self._recorder.stands_at(())
        return self


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def retold(record: SessionRecord, recorder: TrajectoryRecorder) -> None:
    """Let a recorder know the turns of a record, of which nobody knows when they were."""
    for run in record.runs:
        recorder.stands_at(record.context_before(run))
        for place, turn in enumerate(record.turns_of(run)):
            recorder.begin(turn, "tool" if place else "user", None)
            recorder.sampled(turn.sampled)
            if turn.outcome is not None:
                recorder.end(turn.outcome, None)


class _Told:
    """A `CallLog` of a run that has ended: no call is made again."""

    def __init__(self, results: dict[str, ToolResult], run: SavedRun) -> None:
        self._results = results
        self._late = deque(run.late)
        self._said = run.said

    def result_of(self, call: ToolCall) -> ToolResult:
        """Return the result that the call had. Raises `BadJournal`."""
        if call.id not in self._results:
            raise BadJournal(f"the session holds no result of the call {call.id}")
        return self._results[call.id]

    def notice(self, call: ToolCall, tool: Tool) -> str:
        """Return an empty text."""
        return ""

    async def settle(
        self, call: ToolCall, tool: Tool, arguments: dict[str, Any], notice: str
    ) -> str | None:
        """Return why the call is not made."""
        return "the call was made before"

    async def starts(self, call: ToolCall, tool: Tool) -> None:
        """Do nothing."""

    def ended(self, result: ToolResult) -> None:
        """Do nothing."""

    def told_before(self) -> Sequence[str]:
        """Return the calls whose results were told here. Raises `BadJournal`."""
        if not self._late:
            raise BadJournal("the session does not tell when its late results were told")
        return self._late.popleft()

    def said_before(self, turn: int) -> Sequence[Message]:
        """Return what the user said behind a turn."""
        return self._said.get(turn, ())

    def says(self, turn: int, messages: Sequence[Message]) -> None:
        """Do nothing."""

    def tells(self, calls: Sequence[str]) -> None:
        """Do nothing."""


async def reopened(
    engine: Engine,
    spec: SessionSpec,
    keeper: Keeper,
    run: SavedRun,
    sampling: Sampling,
    registry: Registry,
) -> tuple[EngineSession, int] | None:
    """Return a session of the engine that stands behind a run that has ended, and its tokens.

    Nothing is rendered and nothing decoded, and no tool of the registry is called. None: what the
    engine reads in the tokens is not what the messages say, so that they have to be rendered.
    """
    record = keeper.record
    session = engine.open(spec, keeper.replaying(run))
    keeper.freeze()
    held, heard = 0, Transcript(record.messages[: run.asked])
    told = _Told(record.results_of(run), run)
    dispatcher = Dispatcher(registry, ToolRun(log=told))
    limits = Limits(max_turns=None)
    context = RunContext(
        registry, limits=limits, sampling=sampling, pausing=spec.pausing, tools=ToolRun(log=told)
    )
    again = loop.run(session, record.messages[: run.asked], dispatcher, context)
    try:
        async with aclosing(again) as events:
            async for event in events:
                heard.take(event)
                if isinstance(event, TurnEnded):
                    held += event.prompt_tokens + event.completion_tokens
        if list(heard.messages) == record.messages[: run.ends]:
            return session, held
        LOG.debug("the tokens of %s say something else than the messages", run.key)
    except (EngineFailed, UsageError, BadJournal) as error:
        LOG.debug("the tokens of %s cannot be read again: %s", run.key, error)
    finally:
        keeper.thaw()
    await session.close()
    return None
