"""The span of one turn of the model."""

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    Event,
    FollowUpReport,
    ReasoningDelta,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.recording import conventions as names
from caesura.runtime.run.fold import UsageCount
from caesura.runtime.tracing.content import (
    MAX_NAME_CHARACTERS,
    Content,
    answer_message,
    clean,
    each_message,
    input_messages,
    json_of,
    whole_input,
)
from caesura.runtime.tracing.status import fail_by
from caesura.scheduler.histories import place_of
from caesura.scheduler.messages import Message, Sampling


class ChatTrace:
    """The span of one turn. It holds the turn's text and calls if content is wanted.

    `said` is the JSON of each message of the conversation so far. The turn adds its own, if content
    is wanted.
    """

    def __init__(
        self, span: Span, messages: Sequence[Message], said: list[str], *, content: Content
    ) -> None:
        self.span = span
        self.ended: TurnEnded | None = None
        self.request_id: str | None = None
        """The id of the engine's request that decoded the turn."""
        self.sent_at: float | None = None
        """When the turn's tokens were handed to the engine, a Unix time, if the engine tells."""
        self.context_tokens: int | None = None
        """The tokens of the context behind the turn, if the engine tells."""
        self.usage = UsageCount()
        self._content = content
        self._wanted = content.is_wanted(span)
        self._began = time.monotonic()
        self._first_chunk: float | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._made: list[CallFinished] = []
        self._said = said
        if self._wanted:
            new = each_message(messages)
            said += new
            content.set_input(span, whole_input(said), input_messages(new))

    def note(self, event: Event) -> None:
        """Add one event of the turn to the span."""
        if self._first_chunk is None:
            self._first_chunk = time.monotonic() - self._began
        self.usage.take(event)
        match event:
            case TextDelta(text=text):
                # Also what will be cut, since a mask sees whole texts.
                if self._wanted:
                    self._text.append(text)
            case ReasoningDelta(text=text):
                if self._wanted:
                    self._reasoning.append(text)
            case CallFinished() if self._wanted:
                self._made.append(event)
            case CallMalformed(name=name):
                told = clean(name or "", MAX_NAME_CHARACTERS)
                self.span.add_event(names.CALL_MALFORMED, {names.TOOL_NAME: told})
            case TurnEnded():
                self.ended = event
            case _:
                pass

    @property
    def input_tokens(self) -> dict[str, int]:
        """The tokens of the input: all, those in the cache, and those that were new."""
        if self.ended is None:
            return {}
        new, cached = self.ended.prompt_tokens, self.ended.cached_tokens
        before = (self.context_tokens or 0) - self.ended.completion_tokens
        whole = max(new, before)
        return {
            names.INPUT_TOKENS: whole,
            names.CACHED_TOKENS: min(cached, whole),
            names.APPENDED_TOKENS: new,
        }

    def message(self) -> Message:
        """Return what the turn wrote as a message; it is empty if content is not wanted."""
        said: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            said["reasoning"] = "".join(self._reasoning)
        if self._made:
            said["tool_calls"] = [
                {"id": each.call_id, "function": {"name": each.name, "arguments": each.arguments}}
                for each in self._made
            ]
        return said

    def end(self, error: BaseException | None) -> str | None:
        """End the span, and return what the turn wrote, as JSON, if content is wanted.

        `error` is the exception that ended the turn early, if any.
        """
        written = None
        told: dict[str, AttributeValue] = {}
        if self._first_chunk is not None:
            told[names.TIME_TO_FIRST_CHUNK] = self._first_chunk
        if self.ended is not None:
            told |= _attributes(self.ended)
            told |= self.input_tokens
        elif error is not None:
            fail_by(self.span, error)
        if self.sent_at is not None:
            self.span.add_event(names.REQUEST_SENT, timestamp=round(self.sent_at * 1e9))
        if self.request_id is not None:
            told[names.REQUEST_ID] = self.request_id
        self.span.set_attributes(told)  # at once, which costs less than one by one
        if self._wanted:
            reason = "error" if self.ended is None else names.PART_REASONS[self.ended.reason]
            texts = "".join(self._text), "".join(self._reasoning)
            message = answer_message(*texts, self._made)
            self._said.append(json_of(message))
            written = f"[{json_of({**message, 'finish_reason': reason})}]"
            self._content.set(self.span, names.OUTPUT_MESSAGES, written)
        self.span.end()
        return written


def asked(sampling: Sampling | None) -> dict[str, AttributeValue]:
    """Return the span attributes of the given sampling settings, without those left at None."""
    if sampling is None:
        return {}
    said = {
        names.REQUEST_MAX_TOKENS: sampling.max_tokens,
        names.REQUEST_TEMPERATURE: sampling.temperature,
        names.REQUEST_TOP_P: sampling.top_p,
        names.REQUEST_TOP_K: sampling.top_k,
        names.REQUEST_SEED: sampling.seed,
        names.REQUEST_PRESENCE_PENALTY: sampling.presence_penalty,
        names.REQUEST_FREQUENCY_PENALTY: sampling.frequency_penalty,
    }
    return {name: value for name, value in said.items() if value is not None}


def _attributes(turn: TurnEnded) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        names.FINISH_REASONS: (names.REASONS[turn.reason],),
        names.OUTPUT_TOKENS: turn.completion_tokens,
    }
    if turn.spelled_tokens:
        attributes[names.SPELLED_TOKENS] = turn.spelled_tokens
    if turn.reasoning_tokens:
        attributes[names.REASONING_TOKENS] = turn.reasoning_tokens
    if turn.follow_up is not None:
        attributes |= _follow_up(turn.follow_up)
    return attributes if turn.resume is None else attributes | _pause(turn.resume)


def _follow_up(report: FollowUpReport) -> dict[str, AttributeValue]:
    told: dict[str, AttributeValue] = {
        names.FOLLOW_UP_OUTCOME: report.outcome,
        names.FOLLOW_UP_WHY: report.why,
        names.FOLLOW_UP_SPLICED_TOKENS: report.spliced_tokens,
    }
    if report.field:
        told[names.FOLLOW_UP_FIELD] = report.field
    if (place := place_of(report.field)) is not None:
        told[names.FOLLOW_UP_MESSAGE] = place
    return told


def _pause(report: ResumeReport) -> dict[str, AttributeValue]:
    return {
        names.PAUSE_HANDLING: report.handling,
        names.PAUSE_SECONDS: report.pause_seconds,
        names.PAUSE_QUEUE_SECONDS: report.queue_seconds,
        names.PAUSE_CONTEXT_TOKENS: report.context_tokens,
        names.PAUSE_CACHED_TOKENS: report.cached_tokens,
        names.PAUSE_LOADED_TOKENS: report.loaded_tokens,
    }
