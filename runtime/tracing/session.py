"""An engine session whose turns have spans."""

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
    """An engine session that makes spans of its own, and then asks whose children they are."""

    trace_headers: Callable[[], Mapping[str, str]] | None


class TracedSession:
    """Passes on what an engine session says; it fits `caesura.runtime.engine.EngineSession`."""

    def __init__(self, session: EngineSession, begin: Begin, end: End) -> None:
        self._session = session
        told = hasattr(session, "trace_headers")  # not `isinstance`, which takes long for protocols
        self._told = cast(TakesHeaders, session) if told else None
        self._begin = begin
        self._end = end

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        """Decode a turn within a span; see `EngineSession.turn`."""
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
            # Where the engine keeps records: how they call the request.
            chat.request_id = getattr(self._session, "request_id", None)
            self._end(chat, error)

    async def close(self, *, follow_up: bool = False) -> None:
        """End the session."""
        await self._session.close(follow_up=follow_up)
