"""`ScriptedEngine`: an engine in memory that says what a script tells it, to test agents with.

It keeps to the contract of `caesura.runtime.engine` and holds its caller to it, so an agent that
runs on it sees what it would see from the real engine, with no model and no waiting:

    engine = ScriptedEngine([call("calculator", expression="2+2"), say("It is 4.")])
    answer = await Agent(engine, tools=["calculator"]).run("What is 2+2?")
    engine.assert_finished()
"""

from collections.abc import Awaitable, Callable, Sequence
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
from caesura.runtime.testing.scripted_session import ScriptedSession
from caesura.scheduler.messages import SessionSpec

Pace = Callable[[Event], Awaitable[None]]
"""Awaited before each event is handed out: lets a test hold or slow the decode."""


class ScriptedEngine:
    """A fake `Engine`. `script` is taken up turn by turn, by whichever session asks next.

    `script` may be a function instead, called each turn with the session's conversation so far and
    the tools shown to it. `sessions` gives each session its own script, in the order they open.
    Text streams in pieces of `piece_characters`; a token is a run of characters without spaces.
    As a context manager it asserts at the end that the script was finished and nothing leaked.
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
    ) -> None:
        if sessions is not None and script != ():
            raise UsageError("give either one shared script or one per session, not both")
        self._scripts = [Reader(each) for each in (sessions or [script])]
        self._shared = sessions is None
        self._model = model
        self._context_tokens = context_tokens
        self._failed: EngineFailed | None = None
        self._closed = False
        self._calls = 0
        self.piece_characters = piece_characters
        self.pace = pace
        self.sessions: list[ScriptedSession] = []
        """Every session ever opened, in order."""

    @property
    def model(self) -> str:
        """Name under which the model is served."""
        return self._model

    @property
    def context_tokens(self) -> int:
        """The context window; a turn that would not fit raises `ContextOverflow`."""
        return self._context_tokens

    def count_tokens(self, text: str) -> int:
        """Runs of characters without white space: fewer than a real model's tokens."""
        return count_units(text)

    @property
    def open_sessions(self) -> int:
        """How many sessions are not closed; a run that leaks none leaves it at 0."""
        return sum(not session.closed for session in self.sessions)

    @property
    def closed(self) -> bool:
        """Whether the engine was closed."""
        return self._closed

    def open(self, spec: SessionSpec) -> ScriptedSession:
        """Open a session. Raises `ScriptError` if there is no script for it."""
        index = 0 if self._shared else len(self.sessions)
        if index >= len(self._scripts):
            raise ScriptError(f"session {index + 1} was opened; only {index} have a script")
        session = ScriptedSession(self, spec, self._scripts[index], len(self.sessions) + 1)
        self.sessions.append(session)
        return session

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine was closed or the script made it fail so."""
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise EngineFailed("the scripted engine is closed")

    async def close(self) -> None:
        """Close every session and refuse further turns."""
        for session in self.sessions:
            await session.close()
        self._closed = True

    def assert_finished(self) -> None:
        """Raise `ScriptError` if items were never asked for or a session was never closed."""
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
        """Stay unhealthy after an `EngineFailed`, as a dead engine does."""
        if isinstance(error, EngineFailed):
            self._failed = error

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Assert that the script was finished, unless the block failed; close."""
        try:
            if error is None:
                self.assert_finished()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<ScriptedEngine {self._model!r}: {self.open_sessions} open session(s)>"
