"""`ScriptedEngine`: an engine in memory whose output follows a script, for tests of agents.

The engine keeps the contract of `caesura.runtime.engine` and checks that its caller does. An agent
sees the same events as from the real engine, without a model and without waiting:

    engine = ScriptedEngine([call("calculator", expression="2+2"), say("It is 4.")])
    answer = await Agent(engine, tools=["calculator"]).run("What is 2+2?")
    engine.assert_finished()
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from types import TracebackType
from typing import Self

from caesura.intercept.calls.events import Event
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.testing.script import (
    Reader,
    Script,
    ScriptError,
    count_units,
)
from caesura.runtime.testing.scripted_session import ScriptedSession, message_units
from caesura.scheduler.answers import Answers
from caesura.scheduler.media import MediaRules
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import SessionLog

NO_MEDIA = MediaRules()
Pace = Callable[[Event], Awaitable[None]]
"""A function that is awaited before each event, so that a test can hold or slow the decode."""


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
    ) -> None:
        if sessions is not None and script != ():
            raise UsageError(
                "give either one shared script or one per session, got both: leave out `script` or"
                " `sessions`"
            )
        self._scripts = [Reader(each) for each in (sessions or [script])]
        self._shared = sessions is None
        self._model = model
        self._context_tokens = context_tokens
        self._failed: EngineFailed | None = None
        self._closed = False
        self._calls = 0
        self.restarts = 0
        """How many times the engine was restarted."""
        self.revival = Revival(lambda: self._failed is None and not self._closed)
        """Where sessions wait for a restart; `revival.supervising()` lets them wait."""
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
        self.sessions: list[ScriptedSession] = []
        """All sessions in the order of opening, including closed ones."""

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        return self._model

    @property
    def context_tokens(self) -> int:
        """The context window in tokens; a turn that does not fit raises `ContextOverflow`."""
        return self._context_tokens

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

        Turns raise `error` before their next event, or wait for a restart if somebody supervises
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

    def next_call_id(self) -> str:
        """Return a fresh call id: `call_1`, `call_2`, ..."""
        self._calls += 1
        return f"call_{self._calls}"

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
