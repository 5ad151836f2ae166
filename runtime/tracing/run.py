"""The spans of one run: `invoke_agent` with a `chat` per turn and an `execute_tool` per call.

A tool's span is a sibling of the span of its turn: the two overlap, and the tool ends later.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from caesura.runtime.engine import EngineSession
from caesura.runtime.events import RunEnded, RunEvent, Usage
from caesura.runtime.recording import conventions as names
from caesura.runtime.tracing.call import CallTrace
from caesura.runtime.tracing.chat import ChatTrace, asked
from caesura.runtime.tracing.content import (
    MAX_NAME_CHARACTERS,
    Content,
    clean,
    input_messages,
)
from caesura.runtime.tracing.session import TracedSession
from caesura.runtime.tracing.status import fail_by
from caesura.scheduler.messages import Message, Sampling
from caesura.tools.dispatcher import ToolCall


class RunTrace:
    """The spans of one run. `Tracing.run` makes it, with the run's own span."""

    def __init__(
        self, tracer: Tracer, span: Span, model: str, conversation: str | None, *, content: Content
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._model = model
        self._content = content
        self._context = set_span_in_context(span)
        self._same = {names.CONVERSATION_ID: conversation} if conversation else {}
        self._usage = Usage()
        # Receivers show a trace by the texts of its first span; recordings have those of its turns.
        self._tells_content = content.is_sent(span)
        self._asked: str | None = None
        self._written: str | None = None

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
        if self._tells_content and self._asked is None:
            self._asked = input_messages(messages)
            self._content.set(self._span, names.INPUT_MESSAGES, self._asked)
        return ChatTrace(span, messages, content=self._content)

    def _end_chat(self, chat: ChatTrace, error: BaseException | None) -> None:
        self._written = chat.end(error) or self._written
        self._usage += chat.usage.total
        if chat.ended is None:
            self._usage += Usage(turns=1)  # a turn that ended early counts too

    def _end(self, ended: RunEnded | None, error: BaseException | None) -> None:
        self._span.set_attributes(
            {
                names.INPUT_TOKENS: self._usage.prompt_tokens,
                names.OUTPUT_TOKENS: self._usage.completion_tokens,
                names.CACHED_TOKENS: self._usage.cached_tokens,
                names.TURNS: self._usage.turns,
                names.CALLS: self._usage.calls,
            }
        )
        if self._tells_content and self._written is not None:
            self._content.set(self._span, names.OUTPUT_MESSAGES, self._written)
        if ended is not None:
            self._span.set_attribute(names.FINISH_REASONS, (names.REASONS[ended.reason],))
        elif error is not None:
            fail_by(self._span, error)
        self._span.end()
