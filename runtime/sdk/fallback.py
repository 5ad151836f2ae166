"""Engines that stand in for each other: where one fails, the next goes on from the history."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing

from caesura.intercept.calls.events import (
    Event,
    ModelChanged,
    TurnEnded,
)
from caesura.runtime.engine import Backend, Engine, EngineSession
from caesura.runtime.errors import ContextOverflow, EngineFailed, RequestAborted, RequestFailed
from caesura.runtime.run.fold import Transcript
from caesura.scheduler.histories import History
from caesura.scheduler.messages import InputGrammar, MediaRules, Message, Sampling, SessionSpec
from caesura.scheduler.programs import Origin
from caesura.scheduler.revival import Revival
from caesura.scheduler.session_log import SessionLog

LOG = logging.getLogger(__name__)
REST_SECONDS = 60.0
"""New sessions leave out an engine that has failed for so long."""
Start = Callable[[], Awaitable[Engine]]
"""Returns an engine that is ready, which it starts at the first time."""


class FallbackEngine:
    """Several engines, of which a session uses the first that works.

    Where it fails, the session goes on with the next one, from the history: the calls that were
    made stay made. `EngineFailed` and `RequestFailed` count as failures, and so does
    `ContextOverflow` where the next model's window is longer. Engines start when they are needed.
    `begin` must have returned once before any other use.
    """

    def __init__(
        self, starts: Sequence[Start], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._starts = tuple(starts)
        self._clock = clock
        self._engines: dict[int, Engine] = {}
        self._rests_until: dict[int, float] = {}
        self._first = 0
        """The engine that the last session began with."""

    async def begin(self) -> None:
        """Start the first engine that works. Raises the error of the last one that does not."""
        for place in self._in_order():
            try:
                await self.ready(place)
            except EngineFailed as error:
                if place == self._in_order()[-1]:
                    raise
                self.rest(place, error)
            else:
                self._first = place
                return

    def _in_order(self) -> list[int]:
        """Return the places of all engines, those that have failed lately last."""
        now = self._clock()
        places = range(len(self._starts))
        return sorted(places, key=lambda place: (self._rests_until.get(place, now) > now, place))

    async def ready(self, place: int) -> Engine:
        """Return the engine at a place, started. Raises `EngineFailed`."""
        self._engines[place] = await self._starts[place]()
        return self._engines[place]

    def rest(self, place: int, error: Exception) -> None:
        """Leave an engine out for a while."""
        LOG.warning("the model %s failed, the next one goes on: %s", self.name(place), error)
        self._rests_until[place] = self._clock() + REST_SECONDS

    def after(self, place: int) -> Iterator[int]:
        """Yield the places of the engines that a session at `place` may go on with."""
        yield from (other for other in range(len(self._starts)) if other > place)

    def name(self, place: int) -> str:
        """Return the name of the model at a place."""
        engine = self._engines.get(place)
        return f"number {place + 1}" if engine is None else engine.model

    def at(self, place: int) -> Engine:
        """Return an engine that has started."""
        return self._engines[place]

    @property
    def _now(self) -> Engine:
        return self._engines[self._first]

    @property
    def model(self) -> str:
        """The name of the first model that works."""
        return self._now.model if self._engines else "the first model that works"

    @property
    def names(self) -> Sequence[str]:
        """The names of that model."""
        return self._now.names

    @property
    def adapters(self) -> Collection[str]:
        """The adapters of that model."""
        return self._now.adapters

    @property
    def context_tokens(self) -> int:
        """The shortest context window of the engines that have started."""
        return min(engine.context_tokens for engine in self._engines.values())

    @property
    def default_sampling(self) -> Sampling:
        """The settings of that model."""
        return self._now.default_sampling

    @property
    def max_answer_tokens(self) -> int | None:
        """The bound of that model's operator."""
        return self._now.max_answer_tokens

    @property
    def media_rules(self) -> MediaRules:
        """What that model takes."""
        return self._now.media_rules

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError` if that model cannot follow the grammar."""
        self._now.check_input(grammar)

    def count_tokens(self, text: str) -> int:
        """Return that model's number of tokens of a text."""
        return self._now.count_tokens(text)

    async def count_prompt(self, spec: SessionSpec, messages: Sequence[Message]) -> int:
        """Return that model's number of tokens of a prompt."""
        return await self._now.count_prompt(spec, messages)

    def open(self, spec: SessionSpec, log: SessionLog | None = None) -> "FallbackSession":
        """Return a new session. Only the first model's turns go to the log."""
        place = self._first
        return FallbackSession(self, place, spec, self.at(place).open(spec, log))

    async def history(self, messages: Sequence[Message], spec: SessionSpec) -> History:
        """Return what messages tell that model."""
        return await self._now.history(messages, spec)

    async def end_session(self, origin: Origin) -> None:
        """Free what all engines keep for a session."""
        for engine in self._engines.values():
            await engine.end_session(origin)

    async def check_health(self) -> None:
        """Do nothing: a session finds out by itself, and goes on with another engine."""

    @property
    def revival(self) -> Revival:
        """Where sessions of that model wait for a restart."""
        return self._now.revival

    async def restart(self) -> None:
        """Start that model's engine anew."""
        await self._now.restart()

    async def revived(self, error: EngineFailed) -> None:
        """Wait until that model's engine lives again."""
        await self._now.revived(error)

    async def close(self) -> None:
        """Close all engines that have started."""
        for engine in self._engines.values():
            await engine.close()

    @property
    def backend(self) -> Backend:
        """What the operator of that model sees."""
        return self._now.backend

    def __repr__(self) -> str:
        return f"<FallbackEngine of {len(self._starts)} models>"


class FallbackSession:
    """One conversation, with the first engine that works, and the history to go on from."""

    def __init__(
        self, engines: FallbackEngine, place: int, spec: SessionSpec, session: EngineSession
    ) -> None:
        self._engines = engines
        self._place = place
        self._spec = spec
        self._session = session
        self._transcript = Transcript()
        self._failed: Exception | None = None
        """Why the engine cannot take the next turn."""

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Append messages and yield the events of the turn; see `EngineSession.turn`.

        `ModelChanged` tells that another model writes the turn, from its beginning.
        """
        for message in messages:
            self._transcript.add(message)
        error, self._failed = self._failed, None
        feed = messages
        while True:
            if error is not None:
                yield await self._next_engine(error)
                feed = self._transcript.messages
            try:
                async with aclosing(self._session.turn(feed, sampling)) as events:
                    async for event in events:
                        self._transcript.take(event)
                        yield event
                return
            except (EngineFailed, RequestFailed, ContextOverflow) as failure:
                if isinstance(failure, RequestAborted):
                    raise
                error = failure
            if self._transcript.has_open_calls:
                # They are being made: their results are what the next engine goes on from.
                self._failed = error
                ended = TurnEnded("call", 0, 0, 0)
                self._transcript.take(ended)
                yield ended
                return
            self._transcript.rewind(len(self._transcript.messages))

    async def _next_engine(self, error: Exception) -> ModelChanged:
        """Open a session of the next engine that starts; raise `error` if there is none."""
        await self._session.close()
        window = self._engines.at(self._place).context_tokens
        if not isinstance(error, ContextOverflow):
            self._engines.rest(self._place, error)
        for place in self._engines.after(self._place):
            try:
                engine = await self._engines.ready(place)
            except EngineFailed as failure:
                self._engines.rest(place, failure)
                continue
            if isinstance(error, ContextOverflow) and engine.context_tokens <= window:
                continue
            self._place, self._session = place, engine.open(self._spec)
            return ModelChanged(engine.model, str(error))
        raise error

    def hold(self) -> None:
        """Let the next turn's request wait at its end."""
        self._session.hold()

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way."""
        return await self._session.cut(tokens)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session of the same model continue from the tokens."""
        await self._session.remember(answer)

    async def expect_pause(self, seconds: float) -> None:
        """Say how long a pause will last."""
        await self._session.expect_pause(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session."""
        await self._session.close(follow_up=follow_up)
