"""`ScriptedEngine`: an engine in memory whose output follows a script, for tests of agents.

The engine keeps the contract of `caesura.runtime.engine` and checks that its caller does. An agent
sees the same events as from the real engine, without a model and without waiting:

    engine = ScriptedEngine([call("calculator", expression="2+2"), say("It is 4.")])
    answer = await Agent(engine, tools=["calculator"]).run("What is 2+2?")
    engine.assert_finished()

In the logs of its sessions, the tokens of a turn are the bytes of its events as JSON lines.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Literal, Self

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    FollowUpReport,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.engine import NoBackend
from caesura.runtime.errors import ContextOverflow, EngineFailed, UsageError
from caesura.runtime.event_log import called, events_of, tokens_of
from caesura.runtime.run.fold import Transcript
from caesura.runtime.testing.script import (
    Calls,
    Fail,
    Reader,
    Script,
    ScriptError,
    as_calls,
    broken_rule,
    count_units,
    cut,
    play,
    stopped,
)
from caesura.scheduler.answers import Answers, Missed
from caesura.scheduler.histories import Histories, History, length_up_to_answer
from caesura.scheduler.messages import (
    LATE,
    InputGrammar,
    MediaRules,
    Message,
    Sampling,
    SessionSpec,
    has_media,
)
from caesura.scheduler.programs import Origin
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome

NO_MEDIA = MediaRules()
Pace = Callable[[Event], Awaitable[None]]
"""A function that is awaited before each event, so that a test can hold or slow the decode."""


class CallIds:
    """The ids of an engine's calls: `call_1`, `call_2`, ..."""

    def __init__(self) -> None:
        self._last = 0

    def new(self) -> str:
        """Return an id that no call has."""
        self._last += 1
        return f"call_{self._last}"

    def saw(self, call_id: str) -> None:
        """Note an id of an earlier engine's call."""
        number = call_id.removeprefix("call_")
        if number.isdecimal():
            self._last = max(self._last, int(number))


class ScriptedLog:
    """Writes and replays the log of one scripted session, which may have none."""

    def __init__(self, log: SessionLog | None, ids: "CallIds") -> None:
        """Create it; `ids` are those of the engine's calls, but the log knows its own."""
        self._log = log
        self._ids = ids
        self._known: deque[str] = deque()
        self._left = deque(log.turns if log is not None else ())
        self._old = self._part = 0

    def call_id(self) -> str:
        """Return the next call's id, as the log has it."""
        return self._known.popleft() if self._known else self._ids.new()

    def begin(self, prompt: int, messages: Sequence[Message]) -> list[Event]:
        """Begin a turn of messages with `prompt` tokens; return the events that are logged."""
        if self._log is None:
            return []
        if not self._left:
            self._log.begin(LoggedTurn([0] * prompt))
            self._old = 0
            return []
        for message in messages:
            for made in message.get("tool_calls") or ():
                self._ids.saw(made["id"])
        logged = self._left.popleft()
        events = events_of(logged.sampled)
        self._old = len(events)
        self._known = deque(called(events))
        for known in self._known:
            self._ids.saw(known)
        self._part = len(logged.sampled) - sum(len(tokens_of(each)) for each in events)
        return events

    def replayed(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the events of a turn that ended in the log."""
        self._known.clear()
        yield from events

    def write(self, event: Event) -> None:
        """Write an event, unless the log has it."""
        if self._log is None:
            return
        if self._old:
            self._old -= 1
            return
        self._log.sampled(tokens_of(event)[self._part :])
        self._part = 0
        if isinstance(event, TurnEnded):
            finish: Literal["stop", "length"] = "length" if event.reason == "length" else "stop"
            paused, cached = event.reason == "call", event.cached_tokens
            self._log.end(TurnOutcome(finish, None, paused, cached, event.resume))


class ScriptedSession:
    """One conversation with a `ScriptedEngine`, and a record of all that the caller sent."""

    def __init__(
        self,
        engine: "ScriptedEngine",
        spec: SessionSpec,
        reader: Reader,
        number: int,
        log: SessionLog | None = None,
    ) -> None:
        self._engine = engine
        self._log = ScriptedLog(log, engine.call_ids)
        self._reader = reader
        self._number = number
        self._transcript = Transcript()
        self._context = 0
        self._open_calls: list[str] = []
        self._busy = False
        self._stop_text: str | None = None
        self._broken_off = False
        self._cuts = False
        self.request_id: str | None = f"scripted-{number}"
        """The id of the session's request, as in a real engine."""
        self.spec = spec
        self.turns: list[tuple[Message, ...]] = []
        """The messages that the caller sent in each turn."""
        self.samplings: list[Sampling] = []
        """The sampling settings of each turn."""
        self.held_turns: list[int] = []
        """The numbers of the turns, from 1, whose requests were to wait at their end."""
        self.expected_pauses: list[float] = []
        """The forecasts of the session's pauses, in seconds."""
        self.closed = False
        self.follow_up = False
        """Whether the session was closed at a call that another session will answer."""

    @property
    def context_tokens(self) -> int:
        """The tokens of the context, those of the latest turn too."""
        return self._context

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, including the script's output."""
        return self._transcript.messages

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Play the next item of the script.

        Raises `ScriptError` if the caller violates the contract: by two concurrent turns, or by
        results that do not answer the calls. Raises it also at the end of the script.
        """
        if self._busy:
            raise self._error("was asked for while another turn decodes")
        self._busy, self._cuts = True, False
        try:
            await self._engine.alive()
            async for event in self._decode(tuple(messages), sampling or self.spec.sampling):
                if self._engine.pace is not None:
                    await self._engine.pace(event)
                await asyncio.sleep(0)  # a real engine lets other tasks run between tokens
                await self._engine.alive()
                self._transcript.take(event)
                yield event
        finally:
            self._busy = False

    def hold(self) -> None:
        """Record that the next turn's request is to wait at its end."""
        self.held_turns.append(len(self.turns) + 1)

    async def cut(self, tokens: int) -> bool:
        """End the turn under way behind the next piece of its text."""
        self._cuts = self._busy
        return self._busy

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session continue from this one's scripted tokens, unless a stop text cut."""
        if self._stop_text is not None:
            return
        history = self._engine.histories.of((*self.turns[0], *answer), self.spec)
        self._engine.answers.remember(history, [0] * self._context)

    async def expect_pause(self, seconds: float) -> None:
        """Record a forecast of the present pause."""
        self.expected_pauses.append(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session. Idempotent."""
        self.follow_up = self.follow_up or (follow_up and not self.closed)
        self.closed = True

    async def _decode(
        self, messages: tuple[Message, ...], sampling: Sampling
    ) -> AsyncGenerator[Event, None]:
        follow_up = None if self.turns else self._follow_up(messages)
        cached, prompt = self._context, sum(map(message_units, messages))
        if follow_up is not None:
            cached = min(follow_up.spliced_tokens, prompt)
        resumed = self._accept(messages, prompt)
        self.samplings.append(sampling)
        told = self._log.begin(prompt, messages)
        if told and isinstance(told[-1], TurnEnded):
            for event in self._log.replayed(told):
                self._note(event)
                yield event
            return
        item = await self._reader.read(self.messages, self.spec.known_tools, self._error)
        turn, stop_text = stopped(as_calls(item), sampling.stop)
        turn, tokens, was_cut = cut(turn, sampling.max_tokens)
        if turn.calls and self.spec.tool_choice == "none":
            raise self._error("calls a tool, but the session was opened with tool_choice='none'")
        if sampling.calls is not None and not was_cut and stop_text is None:
            broken = broken_rule(turn, sampling.calls)
            if broken is not None:
                raise self._error(broken)
        size, new_id = self._engine.piece_characters, self._log.call_id
        written = ""
        for event in play(turn, size, new_id, sampling.logprobs):
            self._note(event)
            yield event
            written += event.text if isinstance(event, TextDelta) else ""
            if self._cuts and isinstance(event, TextDelta):
                ended = TurnEnded("cut", prompt, max(1, count_units(written)), cached)
                self._note(ended)
                yield ended
                return
        if isinstance(item, Fail) and not was_cut:
            self._engine.note_failure(item.error)
            raise item.error
        report = ResumeReport("preserve", 0.0, 0.0, cached, cached) if resumed else None
        ended = TurnEnded(
            _reason(turn, was_cut),
            prompt,
            tokens,
            cached,
            report,
            follow_up,
            None if was_cut else stop_text,
            count_units(turn.reasoning),
        )
        self._note(ended)
        yield ended

    def _note(self, event: Event) -> None:
        """Keep what the next turn depends on, and log the event."""
        if isinstance(event, CallFinished | CallMalformed):
            self._open_calls.append(event.call_id)
        if isinstance(event, TurnEnded):
            if event.reason == "length":
                self._open_calls.clear()
            self._broken_off = False
            self._context += event.prompt_tokens + event.completion_tokens
            self._stop_text = event.stop_text
        self._log.write(event)

    def _follow_up(self, messages: tuple[Message, ...]) -> FollowUpReport | None:
        length = length_up_to_answer(messages)
        if length is None:
            return None
        if has_media(messages):
            return FollowUpReport("rendered", "media")
        history = self._engine.histories.of(messages[:length], self.spec)
        found = self._engine.answers.find(history)
        if isinstance(found, Missed):
            return FollowUpReport("rendered", found.why, field=found.field)
        return FollowUpReport("spliced", "unchanged", len(found))

    def _accept(self, messages: tuple[Message, ...], prompt: int) -> bool:
        """Check and record a turn's messages; return whether it resumes a paused turn."""
        self.turns.append(messages)
        if self.closed or self._engine.closed:
            raise self._error("was asked for after its session was closed")
        if self._broken_off:
            raise self._error("follows a turn that ended early: open a new session")
        resumed = bool(self._open_calls)
        if resumed and not self.spec.pausing:
            raise self._error("follows calls, but the session was opened with pausing=False")
        if resumed:
            answers = [m for m in messages if not m.get(LATE) and m.get("role") != "user"]
            answered = [m.get("tool_call_id") for m in answers if m.get("role") == "tool"]
            if answered != self._open_calls or len(answered) != len(answers):
                raise self._error(f"must answer {self._open_calls} in order, got {answered}")
        elif not messages:
            raise self._error("was sent no messages")
        if self._context + prompt > self._engine.context_tokens:
            raise ContextOverflow(
                f"{self._context + prompt} tokens exceed {self._engine.context_tokens}",
                self._context + prompt,
                self._engine.context_tokens,
            )
        held = bool(self.held_turns) and self.held_turns[-1] == len(self.turns) - 1
        self._open_calls.clear()
        self._broken_off = True  # until this turn has ended
        if not resumed:
            self._transcript.settle()
        for message in messages:
            self._transcript.add(message)
        return resumed or held

    def _error(self, what: str) -> ScriptError:
        return ScriptError(f"turn {len(self.turns)} of session {self._number} {what}")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<ScriptedSession {self._number}: {len(self.turns)} turn(s), {state}>"


def _reason(turn: Calls, was_cut: bool) -> Literal["call", "stop", "length"]:
    if was_cut:
        return "length"
    return "call" if turn.calls else "stop"


def message_units(message: Message) -> int:
    """Return the number of scripted tokens of a message."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    made = [c["function"] for c in message.get("tool_calls") or ()]
    return count_units(text) + sum(count_units(f"{f['name']} {f['arguments']}") for f in made)


class ScriptedEngine:
    """A fake `Engine`. Each turn of any session reads the next item of `script`.

    `script` may also be a function, which is called each turn with the session's conversation so
    far and its tools. `sessions` gives each session a script of its own, in the order of opening.
    Text streams in pieces of `piece_characters`. A token is a run of characters without spaces.
    As a context manager, the engine asserts at the end that the script is finished and that all
    sessions are closed.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        sessions: Sequence[Script] | None = None,
        model: str = "scripted",
        context_tokens: int = 8192,
        piece_characters: int = 6,
        pace: Pace | None = None,
        media: MediaRules = NO_MEDIA,
        max_answer_tokens: int | None = None,
        adapters: Collection[str] = (),
        aliases: Sequence[str] = (),
    ) -> None:
        if sessions is not None and script != ():
            raise UsageError(
                "give either one shared script or one per session, got both: leave out `script` or"
                " `sessions`"
            )
        self._scripts = [Reader(each) for each in (sessions or [script])]
        self._shared = sessions is None
        self._model = model
        self.names = (model, *aliases)
        """The names under which the model is served."""
        self._context_tokens = context_tokens
        self._failed: EngineFailed | None = None
        self._closed = False
        self.call_ids = CallIds()
        """The ids of its calls."""
        self.restarts = 0
        """How many times the engine was restarted."""
        self.revival = Revival(lambda: self._failed is None and not self._closed)
        """Where sessions wait for a restart; `revival.supervising()` lets them wait."""
        self.histories = Histories()
        self.answers = Answers()
        """The remembered answers, whose follow-ups continue from them."""
        self.adapters = adapters
        """The names of LoRA adapters; sessions that name one follow the same script."""
        self.max_answer_tokens = max_answer_tokens
        """The operator's bound on the tokens of an answer; by default none."""
        self.media_rules = media
        """The media that prompts may hold; by default none."""
        self.piece_characters = piece_characters
        self.pace = pace
        self.ended_sessions: list[Origin] = []
        """The sessions whose clients have ended them, with their tenants."""
        self.sessions: list[ScriptedSession] = []
        """All sessions in the order of opening, including closed ones."""

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        return self._model

    @property
    def backend(self) -> NoBackend:
        """It has none."""
        return NoBackend(self._model, type(self).__name__)

    @property
    def context_tokens(self) -> int:
        """The context window in tokens; a turn that does not fit raises `ContextOverflow`."""
        return self._context_tokens

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return what messages tell the model, as digests."""
        return self.histories.of(messages, spec)

    async def end_session(self, origin: Origin) -> None:
        """Note that a session was ended; nothing is kept for it."""
        self.ended_sessions.append(origin)

    def check_input(self, grammar: InputGrammar) -> None:
        """Take any grammar, which the script need not follow."""

    def count_tokens(self, text: str) -> int:
        """Return the number of scripted tokens, which are fewer than a real model's."""
        return count_units(text)

    @property
    def default_sampling(self) -> Sampling:
        """The settings that hold where a request has none; a script has none of its own."""
        return Sampling()

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return the number of scripted tokens of the messages."""
        return sum(map(message_units, messages))

    @property
    def open_sessions(self) -> int:
        """The number of sessions that are not closed."""
        return sum(not session.closed for session in self.sessions)

    @property
    def closed(self) -> bool:
        """Whether the engine was closed."""
        return self._closed

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> ScriptedSession:
        """Return a new session. Raises `ScriptError` if it has no script.

        A turn that ended in the log does not read the script. One that did not end reads its item,
        whose first events are the logged ones.
        """
        index = 0 if self._shared else len(self.sessions)
        if index >= len(self._scripts):
            raise ScriptError(f"session {index + 1} was opened; only {index} have a script")
        number = len(self.sessions) + 1
        session = ScriptedSession(self, spec, self._scripts[index], number, log)
        self.sessions.append(session)
        return session

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine is closed or the script raised `EngineFailed`."""
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise EngineFailed("the scripted engine is closed")

    def die(self, error: EngineFailed | None = None) -> None:
        """Die as an engine's process does; `pace` may call this at any event.

        Turns raise `error` before their next event, or wait for a restart if a supervisor restarts
        the engine. They then go on with that event.
        """
        self._failed = error or EngineFailed("the scripted engine died")

    async def restart(self) -> None:
        """Live again, whatever has happened; see `Engine.restart`."""
        if self._closed:
            raise EngineFailed("the scripted engine is closed")
        self._failed = None
        self.restarts += 1
        self.revival.revive()

    async def revived(self, error: EngineFailed) -> None:
        """Wait until the engine lives again after `error`; see `Engine.revived`."""
        await self.revival.wait(error)

    async def alive(self) -> None:
        """Wait while the engine is dead; raise `EngineFailed` if nobody restarts it."""
        if self._failed is not None:
            await self.revived(self._failed)

    async def close(self) -> None:
        """Close all sessions and refuse further turns."""
        for session in self.sessions:
            await session.close()
        self._closed = True
        self.revival.give_up(EngineFailed("the scripted engine is closed"))

    def assert_finished(self) -> None:
        """Raise `ScriptError` if items were never read or a session was never closed."""
        for number, reader in enumerate(self._scripts, start=1):
            if left := reader.left:
                where = "" if self._shared else f" of session {number}"
                raise ScriptError(
                    f"{len(left)} item(s){where} were never asked for; the next is {left[0]!r}"
                )
        if self.open_sessions:
            raise ScriptError(f"{self.open_sessions} session(s) were never closed")

    def note_failure(self, error: BaseException) -> None:
        """Keep an `EngineFailed` as the engine's health, as a dead engine does."""
        if isinstance(error, EngineFailed):
            self._failed = error

    async def __aenter__(self) -> Self:
        """Return the engine."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the engine; unless the block failed, first assert that the script is finished."""
        try:
            if error is None:
                self.assert_finished()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<ScriptedEngine {self._model!r}: {self.open_sessions} open session(s)>"
