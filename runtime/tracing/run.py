"""The spans of one run: `invoke_agent` with a `chat` per turn and an `execute_tool` per call.

A tool's span is a sibling of the span of its turn: the two overlap, and the tool ends later. Turns
get their spans by a wrapper of the engine's session.
"""

import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context, copy_context
from functools import cached_property, partial
from typing import Protocol, cast

from opentelemetry.context import attach
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from caesura.intercept.calls.events import Event, FollowUpReport
from caesura.runtime.engine import EngineSession
from caesura.runtime.events import RunEnded, RunEvent, Usage
from caesura.runtime.recording import conventions as names
from caesura.runtime.tracing.chat import ChatTrace, asked
from caesura.runtime.tracing.content import (
    MAX_NAME_CHARACTERS,
    Content,
    clean,
    cut,
    each_message,
    whole_input,
)
from caesura.runtime.tracing.differences import Histories
from caesura.runtime.tracing.propagation import headers_of
from caesura.runtime.tracing.status import fail, fail_by
from caesura.scheduler.messages import Message, Sampling
from caesura.tools.context import Fact
from caesura.tools.dispatcher import ToolCall, ToolResult

_SALT = secrets.token_bytes(16)
"""Without it, arguments that are easy to guess could be told from their digests."""


def digest_of(call: ToolCall) -> str:
    """Return a digest that is equal for calls of one tool with equal arguments in this process.

    Arguments that are JSON are equal whatever the order of their fields and their white space.
    """
    try:
        given = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        given = call.arguments
    told = f"{call.name}\0{given}".encode("utf-8", "replace")
    return hashlib.blake2b(told, digest_size=8, key=_SALT).hexdigest()


class CallTrace:
    """The span of one call, updated as its `CallWatch`; the tool's own spans become children."""

    def __init__(self, span: Span, call: ToolCall, *, content: Content) -> None:
        self._span = span
        self._content = content
        self._wanted = content.is_wanted(span)
        self._asked_at: float | None = None
        self._person_seconds = 0.0
        self.context: Context = copy_context()
        self.context.run(attach, set_span_in_context(span))
        if self._wanted:
            content.set(span, names.TOOL_ARGUMENTS, cut(call.arguments))

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """W3C trace context for the tool's own requests, built on demand: most tools send none."""
        return headers_of(self._span)

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Add an event to the span, and measure how long a person takes."""
        named = {f"{names.MARK}{name.partition('.')[0]}.{key}": facts[key] for key in facts}
        self._span.add_event(f"{names.MARK}{name}", named)
        if name == "person.asked":
            self._asked_at = time.monotonic()
        elif name == "person.settled":
            self._person_answered()

    def ended(self, result: ToolResult | None) -> None:
        """End the span with the call's result; None means that the call was cancelled."""
        span = self._span
        self._person_answered()
        if self._person_seconds:
            span.set_attribute(names.PERSON_SECONDS, self._person_seconds)
        if result is None:
            fail(span, names.CANCELLED)
        else:
            span.set_attribute(names.TOOL_ATTEMPTS, result.attempts)
            if result.artifacts:
                made = [artifact.name for artifact in result.artifacts]
                span.set_attribute(names.TOOL_ARTIFACTS, made)
            if self._wanted:
                self._content.set(span, names.TOOL_RESULT, cut(result.content))
            if result.error is not None:
                fail(span, result.error)
        span.end()

    def _person_answered(self) -> None:
        """Add the time of a wait for a person that has ended."""
        if self._asked_at is not None:
            self._person_seconds += time.monotonic() - self._asked_at
            self._asked_at = None


Begin = Callable[[Sequence[Message], Sampling | None], ChatTrace]
End = Callable[[ChatTrace, BaseException | None], None]


class TakesHeaders(Protocol):
    """An engine session that makes spans, and calls `trace_headers` for their parent."""

    trace_headers: Callable[[], Mapping[str, str]] | None


class TracedSession:
    """A `caesura.runtime.engine.EngineSession` that wraps another one and traces its turns."""

    def __init__(self, session: EngineSession, begin: Begin, end: End) -> None:
        self._session = session
        told = hasattr(session, "trace_headers")  # `isinstance` is slow for protocols
        self._told = cast(TakesHeaders, session) if told else None
        self._begin = begin
        self._end = end

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Decode a turn inside a span; see `EngineSession.turn`."""
        chat = self._begin(messages, sampling)
        if self._told is not None:
            self._told.trace_headers = partial(headers_of, chat.span)
        error: BaseException | None = None
        try:
            async with aclosing(self._session.turn(messages, sampling)) as events:
                async for event in events:
                    chat.note(event)
                    yield event
        except BaseException as broken_off:
            error = broken_off
            raise
        finally:
            # The id under which an engine's records name the request, if it keeps records.
            chat.request_id = getattr(self._session, "request_id", None)
            chat.sent_at = getattr(self._session, "sent_at", None)
            chat.context_tokens = getattr(self._session, "context_tokens", None)
            self._end(chat, error)

    def hold(self) -> None:
        """Let the next turn's request wait at its end; see `EngineSession.hold`."""
        self._session.hold()

    async def cut(self, tokens: int) -> bool:
        """Cut the turn under way; see `EngineSession.cut`."""
        return await self._session.cut(tokens)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Remember the answer; see `EngineSession.remember`."""
        await self._session.remember(answer)

    async def expect_pause(self, seconds: float) -> None:
        """Forward the forecast; see `EngineSession.expect_pause`."""
        await self._session.expect_pause(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """Close the wrapped session; see `EngineSession.close`."""
        await self._session.close(follow_up=follow_up)


class RunTrace:
    """The spans of one run. `Tracing.run` makes it, with the run's own span."""

    def __init__(
        self,
        tracer: Tracer,
        span: Span,
        model: str,
        conversation_id: str | None,
        *,
        content: Content,
        histories: Histories,
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._model = model
        self._content = content
        self._context = set_span_in_context(span)
        self._same = {names.CONVERSATION_ID: conversation_id} if conversation_id else {}
        self._usage = Usage()
        # Receivers show a trace by the texts of its first span; recordings have those of its turns.
        self._tells_content = content.is_sent(span)
        self._said: list[str] = []
        """The JSON of each message so far, if content is wanted."""
        self._has_asked = False
        self._written: str | None = None
        self._input: Counter[str] = Counter()
        self._histories = histories
        self._wanted = content.is_wanted(span)
        self._messages: list[Message] = []
        """All so far, if content is wanted."""
        self._asked: int | None = None
        """The number of messages before the first turn of the model."""

    def remember(self, messages: Sequence[Message]) -> None:
        """Take in the conversation before the run, which is a part of its turns' inputs."""
        if self._tells_content:
            self._said += each_message(messages)
        if self._wanted:
            self._messages += messages

    def session(self, session: EngineSession) -> TracedSession:
        """Return the engine session, wrapped so that its turns have spans."""
        return TracedSession(session, self._begin_chat, self._end_chat)

    def call(self, call: ToolCall) -> CallTrace:
        """Begin the span of a tool call."""
        # The model may write a name of any length.
        name = clean(call.name, MAX_NAME_CHARACTERS)
        attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_CALL_ID: clean(call.id, MAX_NAME_CHARACTERS),
            names.TOOL_TYPE: names.FUNCTION,
            names.TOOL_CALL_DIGEST: digest_of(call),
        }
        span = self._tracer.start_span(
            f"{names.EXECUTE_TOOL} {name}", self._context, attributes=attributes | self._same
        )
        return CallTrace(span, call, content=self._content)

    async def events(
        self, events: AsyncGenerator[RunEvent, None]
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the run's events; end the span when they end or fail."""
        ended: RunEnded | None = None
        error: BaseException | None = None
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, RunEnded):
                        ended = event
                    yield event
        except BaseException as broken_off:
            error = broken_off
            raise
        finally:
            self._end(ended, error)

    def _begin_chat(self, messages: Sequence[Message], sampling: Sampling | None) -> ChatTrace:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.VLLM,
            names.REQUEST_MODEL: self._model,
            names.REQUEST_STREAM: True,
        }
        span = self._tracer.start_span(
            f"{names.CHAT} {self._model}",
            self._context,
            SpanKind.CLIENT,
            attributes | self._same | asked(sampling),
        )
        if self._tells_content and not self._has_asked:
            self._has_asked = True
            asked_for = whole_input([*self._said, *each_message(messages)])
            self._content.set(self._span, names.INPUT_MESSAGES, asked_for.text)
        if self._wanted:
            self._messages += messages
            self._asked = len(self._messages) if self._asked is None else self._asked
        return ChatTrace(span, messages, self._said, content=self._content)

    def _end_chat(self, chat: ChatTrace, error: BaseException | None) -> None:
        if self._wanted and chat.ended is not None:
            self._tell_difference(chat.span, chat.ended.follow_up)
            self._messages.append(chat.message())
        self._written = chat.end(error) or self._written
        self._usage += chat.usage.total
        self._input.update(chat.input_tokens)
        if chat.ended is None:
            self._usage += Usage(turns=1)  # a turn that ended early counts too

    def _tell_difference(self, span: Span, report: FollowUpReport | None) -> None:
        """Write what differs where the history no longer continues an earlier one."""
        if report is None or report.why != "changed":
            return
        found = self._histories.difference(self._messages, report.field)
        if found is not None:
            self._content.set(span, names.FOLLOW_UP_KEPT, found.kept)
            self._content.set(span, names.FOLLOW_UP_SENT, found.sent)

    def _end(self, ended: RunEnded | None, error: BaseException | None) -> None:
        if ended is not None and self._asked is not None:
            self._histories.keep(self._messages, self._asked)
        told: dict[str, AttributeValue] = {
            names.INPUT_TOKENS: self._input[names.INPUT_TOKENS],
            names.OUTPUT_TOKENS: self._usage.completion_tokens,
            names.CACHED_TOKENS: self._input[names.CACHED_TOKENS],
            names.APPENDED_TOKENS: self._usage.prompt_tokens,
            names.TURNS: self._usage.turns,
            names.CALLS: self._usage.calls,
        }
        if ended is not None:
            told[names.FINISH_REASONS] = (names.REASONS[ended.reason],)
        elif error is not None:
            fail_by(self._span, error)
        self._span.set_attributes(told)
        if self._tells_content and self._written is not None:
            self._content.set(self._span, names.OUTPUT_MESSAGES, self._written)
        self._span.end()
