"""A wrapper of engine sessions that gives their turns spans."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol, cast

from caesura.intercept.calls.events import Event
from caesura.runtime.engine import EngineSession
from caesura.runtime.tracing.chat import ChatTrace
from caesura.runtime.tracing.propagation import headers_of
from caesura.scheduler.messages import Message, Sampling

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
            self._end(chat, error)

    async def remember(self, answer: Sequence[Message]) -> None:
        """Remember the answer; see `EngineSession.remember`."""
        await self._session.remember(answer)

    async def expect_pause(self, seconds: float) -> None:
        """Forward the forecast; see `EngineSession.expect_pause`."""
        await self._session.expect_pause(seconds)

    async def close(self, *, follow_up: bool = False) -> None:
        """Close the wrapped session; see `EngineSession.close`."""
        await self._session.close(follow_up=follow_up)
