"""The run of one turn that vLLM's application answers, as spans like those of our own runs.

The run begins when vLLM sends its request to the engine, so a request that is refused has none. Its
figures are those of the tap that follows the request. Its texts are those of the HTTP answer.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.types import Message as AsgiMessage
from starlette.types import Send

from caesura.intercept.calls.events import (
    CallFinished,
    Event,
    FollowUpReport,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import RunEnded, RunEvent, Usage, run_reason
from caesura.runtime.run.context import RunTrace
from caesura.runtime.trajectories.recorded import TappedTurn
from caesura.runtime.trajectories.trajectory import Medium
from caesura.scheduler.messages import Message, Sampling
from caesura.scheduler.vllm_server import TokenTap

Begin = Callable[[str], RunTrace | None]
"""Begins the run of a request of the engine, whose id it takes, if runs are traced."""
_REASONS = {"stop": "stop", "length": "length"}
DONE = b"data: [DONE]"
"""The last part of a stream that has one."""
Record = Callable[[str, TappedTurn], None]
"""Takes the id of a request of the engine, and the turn that answered it."""


class VllmTurn:
    """The run of one request. It listens to the request's tap; `end` it in every case."""

    def __init__(
        self, begin: Begin, messages: Sequence[Message], record: Record | None = None
    ) -> None:
        """Create it; `record` takes the turn when it ends."""
        self.follow_up: FollowUpReport | None = None
        """How the history became tokens, if it holds an earlier answer."""
        self.answer: Mapping[str, Any] | None = None
        """The message of the answer, if it has one."""
        self.media: Sequence[Medium] | None = ()
        """Those of the messages; None: the bytes of one are not known."""
        self._begin = begin
        self._messages = messages
        self._record = record
        self._sent: tuple[str, float] | None = None
        """The first request's id, and when it was sent, a Unix time."""
        self._session: _Answered | None = None
        self._telling: asyncio.Task[None] | None = None

    @property
    def takes_facts(self) -> bool:
        """Whether what is known of sampled tokens is recorded."""
        return self._record is not None

    def sent(self, request_id: str) -> None:
        """Begin the run, with its first request."""
        self._sent = self._sent or (request_id, time.time())
        if self._session is None and (run := self._begin(request_id)) is not None:
            self._session = _Answered(request_id)
            self._telling = asyncio.create_task(self._tell(run, self._session))

    def first(self) -> None:
        """Note that the first tokens have come."""
        if self._session is not None:
            self._session.begun.set()

    async def end(self, tap: TokenTap, error: BaseException | None) -> None:
        """End the run; `error` is what broke the answer off, if anything did."""
        record, self._record = self._record, None
        if record is not None and self._sent is not None:
            has_calls = bool((self.answer or {}).get("tool_calls"))
            about = (self._messages, self._sent[1], has_calls, self.media)
            record(self._sent[0], TappedTurn(tap, *about))
        if self._session is None or self._telling is None or self._telling.done():
            return
        self._session.finish(self._events(tap, error), error)
        await asyncio.gather(self._telling, return_exceptions=True)

    def ending(self, send: Send, tap: TokenTap) -> Send:
        """Return a `send` that ends the run before the last part of a whole answer is sent."""

        async def sent(message: AsgiMessage) -> None:
            if tap.reason is not None and _is_last(message):
                await self.end(tap, None)
            await send(message)

        return sent

    def _events(self, tap: TokenTap, error: BaseException | None) -> list[Event]:
        """Return the events of the whole turn, but for its end where it was broken off."""
        answer = self.answer or {}
        thought = answer.get("reasoning") or answer.get("reasoning_content")
        events: list[Event] = [ReasoningDelta(str(thought))] if thought else []
        if text := answer.get("content"):
            events.append(TextDelta(str(text)))
        calls = [_call(each) for each in answer.get("tool_calls") or ()]
        events += calls
        reason = _REASONS.get(tap.reason or "")
        if error is not None or reason is None:
            return events
        ended = TurnEnded(
            "call" if calls else "length" if reason == "length" else "stop",
            tap.prompt_tokens,
            tap.completion_tokens,
            tap.cached_tokens,
            follow_up=self.follow_up,
        )
        return [*events, ended]

    async def _tell(self, run: RunTrace, session: "_Answered") -> None:
        turns = run.session(session)
        async with aclosing(run.events(_run(turns.turn(self._messages)))) as events:
            async for _ in events:
                pass


def _is_last(message: AsgiMessage) -> bool:
    """Return whether a client that got a message has the whole answer."""
    if message["type"] != "http.response.body":
        return False
    return not message.get("more_body") or message.get("body", b"").startswith(DONE)


async def _run(turn: AsyncGenerator[Event, None]) -> AsyncGenerator[RunEvent, None]:
    """Yield the end of the run of a turn."""
    ended: TurnEnded | None = None
    async with aclosing(turn):
        async for event in turn:
            if isinstance(event, TurnEnded):
                ended = event
    if ended is not None:
        used = Usage(ended.prompt_tokens, ended.completion_tokens, ended.cached_tokens, turns=1)
        yield RunEnded(run_reason(ended.reason), "", used)


class _Answered:
    """Stands for the engine's session of the request: its turn tells what vLLM has answered."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.sent_at = time.time()
        self.begun = asyncio.Event()
        self._events: Sequence[Event] = ()
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    def finish(self, events: Sequence[Event], error: BaseException | None) -> None:
        self._events, self._error = events, error
        self._over.set()
        self.begun.set()

    async def turn(
        self, messages: Sequence[Message], sampling: Sampling | None = None
    ) -> AsyncGenerator[Event, None]:
        await self.begun.wait()
        if not self._over.is_set():
            yield TextDelta("")
        await self._over.wait()
        for event in self._events:
            yield event
        if self._error is not None:
            raise self._error
        if not any(isinstance(event, TurnEnded) for event in self._events):
            raise asyncio.CancelledError  # its client left

    def hold(self) -> None:
        """Do nothing: the request is vLLM's."""

    async def cut(self, tokens: int) -> bool:
        """Return False: the request is vLLM's."""
        return False

    async def remember(self, answer: Sequence[Message]) -> None:
        """Do nothing: follow-ups are vLLM's."""

    async def expect_pause(self, seconds: float) -> None:
        """Do nothing: the request does not pause."""

    async def close(self, *, follow_up: bool = False) -> None:
        """Do nothing: the request is vLLM's."""


def _call(call: Mapping[str, Any]) -> CallFinished:
    function = call.get("function") or {}
    named, arguments = function.get("name") or "", function.get("arguments") or ""
    return CallFinished(str(call.get("id") or ""), str(named), str(arguments))


def asked_messages(given: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a body, or its prompt as one, as far as they are messages."""
    messages = given.get("messages")
    if isinstance(messages, list):
        return [each for each in messages if isinstance(each, dict)]
    prompt = given.get("prompt")
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
