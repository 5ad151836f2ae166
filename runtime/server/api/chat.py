"""`POST /v1/chat/completions`: each request has one engine session and one run."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from starlette.requests import Request
from starlette.types import Send

from caesura.runtime.run.context import Plan
from caesura.runtime.run.served_agent import instructed
from caesura.runtime.server.api.chat_answer import (
    Answer,
    Chunks,
    Numbered,
    answer_of,
    completion,
)
from caesura.runtime.server.api.chat_kept import KeptChat, KeptChats
from caesura.runtime.server.api.chat_request import ChatRequest, make_plan, parse
from caesura.runtime.server.api.decoding import (
    open_session,
    side_by_side,
    stream_pieces,
    with_sender,
)
from caesura.runtime.server.api.people import pending_told
from caesura.runtime.server.http.connection import parsed, parsed_once
from caesura.runtime.server.http.errors import JsonAnswer
from caesura.runtime.server.http.exchange import note_answer
from caesura.runtime.server.http.stream import EventStream, errors_sent
from caesura.runtime.server.keys.sender import sender_of
from caesura.runtime.server.load.state import State
from caesura.tools.people import Pending


class ChatCompletions:
    """The handler of the route."""

    def __init__(self, state: State, kept: KeptChats) -> None:
        self._state = state
        self._kept = kept

    async def answer(self, request: Request, send: Send) -> None:
        """Answer a chat completion request, streamed or whole.

        In every case the handler closes the engine's session and cancels the tools under way,
        also when the client leaves.
        """
        started = time.monotonic()
        state = self._state
        shown = sender_of(request)
        with state.gate.enter(shown):
            body = await request.body()
            asked, plan = await _planned(state, request)
            sender = shown.of_user(plan.user, told=plan.spec.origin)
            run = self._kept.joined(shown, body, asked, plan, started)
            if run is not None:
                await self._joined(request, send, asked, plan, run)
                return
            plan = with_sender(state, plan, sender)
            numbers = range(plan.choices)
            answers = [answer_of(plan, asked, number) for number in numbers]
            note_answer(request.scope, answers[0].id)
            async with AsyncExitStack() as sessions:
                decoding: list[AsyncGenerator[Numbered, None]] = []
                for answer in answers:
                    own = plan.of_choice(answer.index)
                    session = await sessions.enter_async_context(open_session(state, own, answer))
                    decoding.append(stream_pieces(state, own, session, answer, started, sender))
                streamed = decoding[0] if len(decoding) == 1 else side_by_side(decoding)
                async with aclosing(streamed) as deltas:
                    await self._send(request, send, asked, plan, answers, deltas)

    async def _joined(
        self, request: Request, send: Send, asked: ChatRequest, plan: Plan, run: KeptChat
    ) -> None:
        """Send the answer of a run that outlives this request."""
        note_answer(request.scope, run.answer.id)
        try:
            async with aclosing(run.read()) as deltas:
                await self._send(request, send, asked, plan, [run.answer], deltas)
        except Exception:
            if run.has_failed:
                self._kept.delivered(run)
            raise
        self._kept.delivered(run)

    async def _send(
        self,
        request: Request,
        send: Send,
        asked: ChatRequest,
        plan: Plan,
        answers: Sequence[Answer],
        deltas: AsyncGenerator[Numbered, None],
    ) -> None:
        if asked.stream:
            await _stream(self._state, request, send, asked, plan, answers, deltas)
            return
        async for _ in deltas:
            pass
        await JsonAnswer(completion(answers))(request.scope, request.receive, send)


async def _planned(state: State, request: Request) -> tuple[ChatRequest, Plan]:
    """Parse and check a body; raise `ApiError` if it is invalid."""
    asked = await parsed_once(request, parse)
    agents = await instructed(state.agents, asked.model)

    def planned(body: bytes) -> Plan:
        return make_plan(asked, state.engine, state.tools, state.limits, agents)

    return asked, await parsed(planned, await request.body())


async def _stream(
    state: State,
    request: Request,
    send: Send,
    asked: ChatRequest,
    plan: Plan,
    answers: Sequence[Answer],
    deltas: AsyncGenerator[Numbered, None],
) -> None:
    chunks = Chunks(answers, include_usage=asked.include_usage)
    async with EventStream(send, state.options.keep_alive_seconds) as stream:
        begun = False

        async def tell(chunk: dict[str, Any]) -> None:
            nonlocal begun
            if not begun:
                begun = True
                for opening in chunks.opening():
                    await stream.send(opening)
            await stream.send(chunk)

        async def tell_pending(item: Pending) -> None:
            await tell(chunks.pending(item))

        async with errors_sent(request, stream, stream.send):
            async with AsyncExitStack() as told_of:
                for answer in answers:
                    telling = pending_told(state.people, answer.id, plan.registry, tell_pending)
                    await told_of.enter_async_context(telling)
                async for number, delta in deltas:
                    await tell(chunks.delta(delta, number))
            for chunk in chunks.closing():
                await tell(chunk)
            await stream.send_done()
        await stream.end()
