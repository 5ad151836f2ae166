"""The sessions of a `ScriptedEngine`."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Literal

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    FollowUpReport,
    ResumeReport,
    TurnEnded,
)
from caesura.runtime.errors import ContextOverflow
from caesura.runtime.run.transcript import Transcript
from caesura.runtime.testing.script import (
    Calls,
    Fail,
    Reader,
    ScriptError,
    as_calls,
    broken_rule,
    count_units,
    cut,
    play,
    stopped,
)
from caesura.runtime.testing.scripted_log import ScriptedLog
from caesura.scheduler.answers import history_of, length_up_to_answer
from caesura.scheduler.media import has_media
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.scheduler.session_log import SessionLog

if TYPE_CHECKING:
    from caesura.runtime.testing.scripted_engine import ScriptedEngine


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
        self._log = ScriptedLog(log, engine.next_call_id)
        self._reader = reader
        self._number = number
        self._transcript = Transcript()
        self._context = 0
        self._open_calls: list[str] = []
        self._busy = False
        self._stop_text: str | None = None
        self._broken_off = False
        self.request_id: str | None = f"scripted-{number}"
        """The id of the session's request, as in a real engine."""
        self.spec = spec
        self.turns: list[tuple[Message, ...]] = []
        """The messages that the caller sent in each turn."""
        self.samplings: list[Sampling] = []
        """The sampling settings of each turn."""
        self.expected_pauses: list[float] = []
        """The forecasts of the session's pauses, in seconds."""
        self.closed = False
        self.follow_up = False
        """Whether the session was closed at a call that another session will answer."""

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
        self._busy = True
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

    async def remember(self, answer: Sequence[Message]) -> None:
        """Let a later session continue from this one's scripted tokens, unless a stop text cut."""
        if self._stop_text is not None:
            return
        history = history_of((*self.turns[0], *answer), self.spec)
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
        told = self._log.begin(prompt)
        if told and isinstance(told[-1], TurnEnded):
            for event in self._log.replayed(told):
                self._note(event)
                yield event
            return
        item = await self._reader.read(self.messages, self.spec.tools, self._error)
        turn, stop_text = stopped(as_calls(item), sampling.stop)
        turn, tokens, was_cut = cut(turn, sampling.max_tokens)
        if turn.calls and self.spec.tool_choice == "none":
            raise self._error("calls a tool, but the session was opened with tool_choice='none'")
        if sampling.calls is not None and not was_cut and stop_text is None:
            broken = broken_rule(turn, sampling.calls)
            if broken is not None:
                raise self._error(broken)
        size, new_id = self._engine.piece_characters, self._log.call_id
        for event in play(turn, size, new_id, sampling.logprobs):
            self._note(event)
            yield event
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
        found = self._engine.answers.find(history_of(messages[:length], self.spec))
        if isinstance(found, str):
            return FollowUpReport("rendered", found)
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
            answered = [m.get("tool_call_id") for m in messages if m.get("role") == "tool"]
            if answered != self._open_calls or len(answered) != len(messages):
                raise self._error(f"must answer {self._open_calls} in order, got {answered}")
        elif not messages:
            raise self._error("was sent no messages")
        if self._context + prompt > self._engine.context_tokens:
            raise ContextOverflow(
                f"{self._context + prompt} tokens exceed {self._engine.context_tokens}"
            )
        self._open_calls.clear()
        self._broken_off = True  # until this turn has ended
        if not resumed:
            self._transcript.settle()
        for message in messages:
            self._transcript.add(message)
        return resumed

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
