"""An engine that runs on one event loop, as the other loops and threads of the process use it."""

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypeVar

from caesura.intercept.calls.events import Event, TurnEnded
from caesura.runtime.engine import Backend, Engine, EngineSession, SessionAround
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.scheduler.errors import refuse_forked
from caesura.scheduler.messages import InputGrammar, MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.scheduler.session_log import SessionLog
from caesura.tools.loops import LoopEnded, items_of, on_loop, tell

if TYPE_CHECKING:
    from caesura.scheduler.histories import History
    from caesura.scheduler.revival import Revival

LOG = logging.getLogger(__name__)
T = TypeVar("T")
WATCH_SECONDS = 2.0
"""How often sessions are looked for whose users' event loops have been closed."""


def on_any_loop(engine: Engine) -> Engine:
    """Return an engine that all event loops and threads may use.

    An engine that belongs to one loop has it as `loop`. All others are taken to belong to none.
    """
    if isinstance(engine, EngineAcross):
        return engine
    loop = getattr(engine, "loop", None)
    return engine if loop is None else EngineAcross(engine, loop)


class EngineAcross:
    """An `Engine` for all event loops and threads, over one that runs on `loop`.

    On `loop` itself it hands out the engine's own generators. Elsewhere events cross in batches.
    Its backend belongs to the engine's loop.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._started_in = os.getpid()
        self._watch = _Watch(loop)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._engine.model

    @property
    def names(self) -> Sequence[str]:
        """All names of the model."""
        return self._engine.names

    @property
    def adapters(self) -> Collection[str]:
        """The names of the adapters."""
        return self._engine.adapters

    @property
    def context_tokens(self) -> int:
        """The context window in tokens."""
        return self._engine.context_tokens

    @property
    def default_sampling(self) -> Sampling:
        """The model's own settings."""
        return self._engine.default_sampling

    @property
    def max_answer_tokens(self) -> int | None:
        """The operator's bound on an answer."""
        return self._engine.max_answer_tokens

    @property
    def media_rules(self) -> MediaRules:
        """What prompts may hold."""
        return self._engine.media_rules

    @property
    def revival(self) -> "Revival":
        """Where sessions wait for a restart, on the engine's loop."""
        return self._engine.revival

    @property
    def backend(self) -> Backend:
        """What its operator sees of it, on the engine's loop."""
        return self._engine.backend

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError` for a grammar that the engine cannot enforce."""
        self._engine.check_input(grammar)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of the text."""
        return self._engine.count_tokens(text)

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return the number of tokens of a first turn's prompt."""
        return await self.there(lambda: self._engine.count_prompt(spec, messages))

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> "SessionAcross":
        """Return a new session for all loops. Raises `UsageError` as the engine does."""
        refuse_forked(self._started_in)
        return SessionAcross(self, self._engine.open(spec, log), self._watch)

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> "History":
        """Return what messages tell the model."""
        return await self.there(lambda: self._engine.history(messages, spec))

    async def end_session(self, origin: Origin) -> None:
        """Free what is kept for a session."""
        await self.there(lambda: self._engine.end_session(origin))

    async def check_health(self) -> None:
        """Raise `EngineFailed` if the engine can no longer decode."""
        await self.there(self._engine.check_health)

    async def restart(self) -> None:
        """Start the engine's process anew."""
        await self.there(self._engine.restart)

    async def revived(self, error: EngineFailed) -> None:
        """Wait until the engine lives again."""
        await self.there(lambda: self._engine.revived(error))

    async def close(self) -> None:
        """Stop the engine."""
        await self.there(self._engine.close)

    # -- for its sessions --------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The engine's event loop. Raises `UsageError` if it does not run, and in a fork."""
        refuse_forked(self._started_in)
        if not self._loop.is_running():
            raise self._ended()
        return self._loop

    async def there(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run `make()` on the engine's loop. Raises `UsageError` if that does not run."""
        try:
            return await on_loop(self.loop, make)
        except LoopEnded:
            raise self._ended() from None

    def _ended(self) -> UsageError:
        state = "is closed" if self._loop.is_closed() else "does not run now"
        return UsageError(
            f"the engine of {self.model} belongs to the event loop that started it, which {state}:"
            " keep that loop running, or give the Agent the model's name, whose engine runs in a"
            " thread of its own for all loops"
        )

    def __repr__(self) -> str:
        return f"{self._engine!r}"


class SessionAcross(SessionAround):
    """An `EngineSession` for all event loops and threads.

    It is closed when it is collected, and with the event loop that reads a turn or runs its calls.
    """

    def __init__(self, engine: EngineAcross, session: EngineSession, watch: "_Watch") -> None:
        super().__init__(session)
        self._engine = engine
        self._watch = watch
        self._collected = weakref.finalize(self, watch.close, session)
        self._collected.atexit = False  # the engine is closed then

    def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append messages and decode; see `EngineSession.turn`.

        Raises `UsageError` if the engine's event loop does not run.
        """
        if asyncio.get_running_loop() is (there := self._engine.loop):
            return self._session.turn(messages, sampling)
        return self._events(there, messages, sampling)

    async def _events(
        self,
        there: asyncio.AbstractEventLoop,
        messages: Sequence[Message],
        sampling: Sampling | None,
    ) -> AsyncGenerator[Event, None]:
        session, is_idle = self._session, False
        self._watch.hold(session, asyncio.get_running_loop())
        # What runs there must not refer to this object, whose reader may vanish.
        made = items_of(there, lambda: session.turn(messages, sampling))
        try:
            async with aclosing(made) as events:
                async for event in events:
                    if isinstance(event, TurnEnded):
                        is_idle = event.reason != "call"
                    yield event
        except LoopEnded as error:
            raise EngineFailed(f"the engine has ended within a turn: {error}") from error
        finally:
            if is_idle:
                self._watch.release(session)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session continue; see `EngineSession.remember`."""
        await self._engine.there(lambda: self._session.remember(answer))

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way; see `EngineSession.cut`."""
        return await self._engine.there(lambda: self._session.cut(tokens))

    async def expect_pause(self, seconds: float) -> None:
        """Forward the forecast; see `EngineSession.expect_pause`."""
        await self._engine.there(lambda: self._session.expect_pause(seconds))

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session; do nothing where the engine's event loop has ended with it."""
        self._collected.detach()
        self._watch.release(self._session)
        try:
            there = self._engine.loop
        except UsageError:
            return
        with suppress(LoopEnded):
            await on_loop(there, lambda: self._session.close(follow_up=follow_up))


class _Watch:
    """Closes the sessions whose users have vanished, on the engine's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[int, tuple[EngineSession, asyncio.AbstractEventLoop]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def hold(self, session: EngineSession, user: asyncio.AbstractEventLoop) -> None:
        """Close the session if the user's event loop is closed, until it is released."""
        self._held[id(session)] = session, user
        if self._timer is None:
            tell(self._loop, self._wait)

    def release(self, session: EngineSession) -> None:
        """Watch the session no more."""
        self._held.pop(id(session), None)

    def close(self, session: EngineSession) -> None:
        """Close a session that nobody can use any more; any thread may call this."""
        self.release(session)
        tell(self._loop, self._close, session)

    def _wait(self) -> None:
        if self._timer is None and self._held:
            self._timer = self._loop.call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        for session, user in list(self._held.values()):
            if user.is_closed():
                self.release(session)
                self._close(session)
        self._wait()

    def _close(self, session: EngineSession) -> None:
        async def close() -> None:
            try:
                await session.close()
            except Exception:
                LOG.exception("a session whose user has vanished cannot be closed")

        task = self._loop.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
