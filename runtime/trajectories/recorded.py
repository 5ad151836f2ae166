"""Sessions of the engine whose turns the trajectories of a server's sessions get."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Literal, NamedTuple

from caesura.intercept.calls.events import Event, TurnEnded
from caesura.runtime.engine import EngineSession
from caesura.runtime.trajectories.recorder import Told, TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Source
from caesura.scheduler.messages import Message, Sampling, has_media
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome
from caesura.scheduler.vllm_server import TokenTap


class RecordedLog:
    """The log of one session of the engine, before a journal if there is one.

    `key` names the session for ever; a journal has a key of its own.
    """

    def __init__(
        self,
        recorder: TrajectoryRecorder,
        key: str,
        model: str,
        journal: SessionLog | None = None,
    ) -> None:
        self._recorder = recorder.beside()
        self._recorder.uses(model)
        self._key = key
        self._journal = journal
        self._left = deque(self.turns)
        self._source: Source = "user"
        self._told: Told | None = None
        """The messages of the present turn."""

    @property
    def key(self) -> str:
        """The text from which the ids of calls are made."""
        return self._key if self._journal is None else self._journal.key

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        """The turns that the engine's session replays."""
        return () if self._journal is None else self._journal.turns

    def told(self, messages: Sequence[Message]) -> None:
        """Note the messages of the turn that begins, which the journal may hold already."""
        self._source = source_of(messages)
        if self._told is None:
            self._told = Told.of(messages)
        else:
            self._told = Told(self._told.total + 1 + len(messages), len(messages))
        if self._left:
            turn = self._left.popleft()
            self._recorder.begin(turn, self._source, None, self._told)
            self._recorder.sampled(turn.sampled)
            if turn.outcome is not None:
                self._recorder.end(turn.outcome, None)

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn, which nothing was sampled for yet."""
        self._recorder.begin(turn, self._source, time.time(), self._told)
        if self._journal is not None:
            self._journal.begin(turn)

    def sampled(self, tokens: Sequence[int]) -> None:
        """Add tokens to the last turn."""
        self._recorder.sampled(tokens)
        if self._journal is not None:
            self._journal.sampled(tokens)

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        self._recorder.end(outcome, time.time())
        if self._journal is not None:
            self._journal.end(outcome)

    def ended(self, turn: TurnEnded) -> None:
        """Note how a turn ended, with calls of the client too."""
        self._recorder.stops(turn.reason)

    def leave(self) -> None:
        """Let others go on behind what was recorded."""
        self._recorder.leave()


class RecordedSession:
    """A `caesura.runtime.engine.EngineSession` that tells its log what each turn is sent for."""

    def __init__(self, session: EngineSession, log: RecordedLog) -> None:
        self._session = session
        self._log = log

    @property
    def request_id(self) -> str | None:
        """The id of the latest request, if the engine has ids."""
        return getattr(self._session, "request_id", None)

    @property
    def context_tokens(self) -> int | None:
        """The tokens of the context behind the latest turn, if the engine tells it."""
        return getattr(self._session, "context_tokens", None)

    @property
    def sent_at(self) -> float | None:
        """When the latest turn was sent, if the engine tells it."""
        return getattr(self._session, "sent_at", None)

    @property
    def trace_headers(self) -> Callable[[], Mapping[str, str]] | None:
        """Returns the trace context for the next request, if the engine makes spans."""
        return getattr(self._session, "trace_headers", None)

    @trace_headers.setter
    def trace_headers(self, headers: Callable[[], Mapping[str, str]] | None) -> None:
        if hasattr(self._session, "trace_headers"):
            self._session.trace_headers = headers

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Decode a turn; see `EngineSession.turn`."""
        self._log.told(messages)
        async with aclosing(self._session.turn(messages, sampling)) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    self._log.ended(event)
                yield event

    async def remember(self, answer: Sequence[Message]) -> None:
        """Remember the answer; see `EngineSession.remember`."""
        await self._session.remember(answer)

    async def expect_pause(self, seconds: float) -> None:
        """Forward the forecast; see `EngineSession.expect_pause`."""
        await self._session.expect_pause(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """Close the session; see `EngineSession.close`."""
        self._log.leave()
        await self._session.close(follow_up=follow_up)


class TappedTurn(NamedTuple):
    """A turn that vLLM's own server has answered."""

    tap: TokenTap
    messages: Sequence[Message]
    """Those of the request."""
    sent_at: float
    """When it was sent to the engine, a Unix time."""
    has_calls: bool
    """Whether the answer has calls."""


def record_tapped(recorder: TrajectoryRecorder, model: str, turn: TappedTurn) -> None:
    """Record a turn that vLLM's server has answered, whole or in part."""
    tap, recorder = turn.tap, recorder.beside()
    recorder.uses(model)
    if tap.requests > 1:
        recorder.lose("the tokens of several answers to one request are not known apart")
    prompt, sampled = tap.tokens[: tap.prompt], tap.tokens[tap.prompt :]
    sent = LoggedTurn(prompt, has_media=has_media(turn.messages))
    recorder.begin(sent, source_of(turn.messages), turn.sent_at, Told.of(turn.messages))
    recorder.sampled(sampled)
    if tap.reason is not None:
        finish: Literal["stop", "length"] = "length" if tap.reason == "length" else "stop"
        outcome = TurnOutcome(finish, paused=turn.has_calls, cached_tokens=tap.cached_tokens)
        recorder.end(outcome, time.time())
    recorder.leave()


def source_of(messages: Sequence[Message]) -> Source:
    """Return who made the tokens behind the last answer in the messages of a turn.

    Without messages, a call in mid sentence was answered.
    """
    new = takewhile(lambda each: each.get("role") != "assistant", reversed(messages))
    return "tool" if not messages or any(map(_has_result, new)) else "user"


def _has_result(message: Message) -> bool:
    if message.get("role") == "tool":
        return True
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(each, dict) and each.get("type") == "tool_result" for each in blocks)
