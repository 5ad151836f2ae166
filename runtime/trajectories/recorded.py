"""Sessions of the engine whose turns the trajectories of a server's sessions get."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import takewhile
from typing import Literal, NamedTuple

from caesura.intercept.calls.events import Event, TurnEnded
from caesura.runtime.engine import EngineSession, SessionAround
from caesura.runtime.trajectories.media import media_in
from caesura.runtime.trajectories.recorder import Told, TrajectoryRecorder
from caesura.runtime.trajectories.trajectory import Medium, Source
from caesura.scheduler.messages import Message, Sampling
from caesura.scheduler.session_log import LoggedTurn, SampledFacts, SessionLog, TurnOutcome
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
        self._media: tuple[Medium, ...] | None = ()
        """Those of all messages; None: the bytes of one are not known."""
        self._sent_at = 0.0
        """When the present turn was asked for, a Unix time."""
        self._is_silent = self._has_begun = False
        """Whether the engine tells no more of its turns, and whether it told of the present one."""

    @property
    def key(self) -> str:
        """The text from which the ids of calls are made."""
        return self._key if self._journal is None else self._journal.key

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        """The turns that the engine's session replays."""
        return () if self._journal is None else self._journal.turns

    @property
    def takes_facts(self) -> bool:
        """Whether it wants what is known of sampled tokens: yes."""
        return True

    def told(self, messages: Sequence[Message], media: tuple[Medium, ...] | None) -> None:
        """Note the messages of the turn that begins, which the journal may hold already.

        `media` are those of the messages, by their places among them.
        """
        self._source, self._has_begun, self._sent_at = source_of(messages), False, time.time()
        if self._told is None:
            self._told = Told.of(messages)
        else:
            self._told = Told(self._told.total + 1 + len(messages), len(messages))
        if media is None or self._media is None:
            self._media = None
        elif media:
            before = self._told.total - len(messages)
            placed = (replace(each, message=before + each.message) for each in media)
            self._media = (*self._media, *placed)
        if self._left:
            turn = self._left.popleft()
            self._recorder.begin(turn, self._source, None, self._told, self._media)
            self._recorder.sampled(turn.sampled)
            if turn.outcome is not None:
                self._recorder.end(turn.outcome, None)

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn, which nothing was sampled for yet."""
        self._has_begun, self._is_silent = True, turn.has_media
        self._recorder.begin(turn, self._source, time.time(), self._told, self._media)
        if self._journal is not None:
            self._journal.begin(turn)

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Add tokens to the last turn."""
        self._is_silent = False
        self._recorder.sampled(tokens, facts)
        if self._journal is not None:
            self._journal.sampled(tokens)

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        self._recorder.end(outcome, time.time())
        if self._journal is not None:
            self._journal.end(outcome)

    def ended(self, turn: TurnEnded, tokens: Sequence[int] | None) -> None:
        """Note how a turn ended, with calls of the client too; `tokens` are the engine's so far."""
        if self._is_silent:
            self._heard(turn, tokens)
        self._recorder.stops("stop" if turn.reason == "cut" else turn.reason)

    def _heard(self, turn: TurnEnded, tokens: Sequence[int] | None) -> None:
        """Record a turn that the engine has not told of: behind media it tells none."""
        if tokens is None:
            self._recorder.lose("the engine keeps the tokens behind pictures and sounds to itself")
            return
        end = len(tokens) - turn.completion_tokens
        if not self._has_begun:
            sent = LoggedTurn(tokens[:end], replaces=True, has_media=True)
            self._recorder.begin(sent, self._source, self._sent_at, self._told, self._media)
        self._recorder.sampled(tokens[end:])
        finish: Literal["stop", "length"] = "length" if turn.reason == "length" else "stop"
        paused = turn.reason == "call"
        outcome = TurnOutcome(
            finish, paused=paused, cached_tokens=turn.cached_tokens, resume=turn.resume
        )
        self._recorder.end(outcome, time.time())

    def leave(self) -> None:
        """Let others go on behind what was recorded."""
        self._recorder.leave()


class RecordedSession(SessionAround):
    """A `caesura.runtime.engine.EngineSession` that tells its log what each turn is sent for."""

    def __init__(self, session: EngineSession, log: RecordedLog) -> None:
        super().__init__(session)
        self._log = log

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Decode a turn; see `EngineSession.turn`."""
        self._log.told(messages, await media_in(messages))
        async with aclosing(self._session.turn(messages, sampling)) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    self._log.ended(event, self.tokens)
                yield event

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
    media: Sequence[Medium] | None = ()
    """Those of the messages; None: the bytes of one are not known."""
    is_several: bool = False
    """Whether the request asks for several answers, whose tokens are mixed."""


def record_tapped(recorder: TrajectoryRecorder, model: str, turn: TappedTurn) -> None:
    """Record a turn that vLLM's server has answered, whole or in part."""
    tap, recorder = turn.tap, recorder.beside()
    recorder.uses(model)
    if tap.requests > 1 or turn.is_several:
        recorder.lose("the tokens of several answers to one request are not known apart")
    prompt, sampled = tap.tokens[: tap.prompt], tap.tokens[tap.prompt :]
    sent = LoggedTurn(prompt, has_media=turn.media is None or bool(turn.media))
    told = Told.of(turn.messages)
    recorder.begin(sent, source_of(turn.messages), turn.sent_at, told, turn.media)
    recorder.sampled(sampled, tap.facts)
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
