"""`POST /v1/messages`: each request has one engine session and one run."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.types import Send

from caesura.runtime.server.chat.plan import Plan, make_plan
from caesura.runtime.server.decoding import apart, opened, owned, pieces
from caesura.runtime.server.delegation import Delegation
from caesura.runtime.server.http.connection import parsed
from caesura.runtime.server.http.counting import note_answer
from caesura.runtime.server.http.errors import JsonAnswer
from caesura.runtime.server.http.stream import EventStream, errors_sent, typed_event
from caesura.runtime.server.load.state import State
from caesura.runtime.server.messages.answer import PING, Answer, Event
from caesura.runtime.server.messages.schema import MessagesRequest, parse
from caesura.runtime.server.people import pending_told
from caesura.tools.people import Pending


class Messages:
    """The handler of the route."""

    def __init__(self, state: State, delegation: Delegation | None) -> None:
        self._state = state
        self._delegation = delegation

    async def answer(self, request: Request, send: Send) -> None:
        """Answer a request, streamed or whole.

        vLLM's own server, where there is one, answers requests that ask for what only it does.
        In every case the handler closes the engine's session and cancels the tools under way,
        also when the client leaves.
        """
        started = time.monotonic()
        state = self._state
        if self._delegation is not None and await self._is_vllms(self._delegation, request):
            await self._delegation.answer(request, send)
            return
        with state.gate.enter(request.headers):
            asked, plan = await parsed(self._planned, await request.body())
            plan = apart(state, owned(plan, request.headers))
            thinks = asked.thinking is None or asked.thinking.type != "disabled"
            tools = plan.client_tools
            answer = Answer(asked.model, tools, pausing=plan.spec.pausing, thinks=thinks)
            note_answer(request.scope, answer.id)
            async with opened(state, plan, answer) as session:
                decoding = pieces(state, plan, session, answer, started, request.headers)
                async with aclosing(decoding) as events:
                    if asked.stream:
                        await _stream(state, request, send, plan, answer, events)
                        return
                    async for _ in events:
                        pass
            await JsonAnswer(answer.whole())(request.scope, request.receive, send)

    async def _is_vllms(self, delegation: Delegation, request: Request) -> bool:
        """Return whether vLLM answers: what this server refuses, such as pictures or adapters.

        vLLM's server would ignore the begin of an answer in the last message, and follow-ups of
        its messages cannot be spliced.
        """
        given = await delegation.body_of(request)
        return given is not None and await delegation.must_answer(request, given, parse)

    def _planned(self, body: bytes) -> tuple[MessagesRequest, Plan]:
        """Parse and check a body; raise `ApiError` if it is invalid."""
        asked, chat = parse(body)
        state = self._state
        return asked, make_plan(chat, state.engine, state.tools, state.limits)


async def _stream(
    state: State,
    request: Request,
    send: Send,
    plan: Plan,
    answer: Answer,
    events: AsyncGenerator[Event, None],
) -> None:
    ping = typed_event(PING)
    async with EventStream(send, state.keep_alive_seconds, keep_alive=ping) as stream:
        begun = False

        async def tell(event: Event) -> None:
            nonlocal begun
            if not begun:
                begun = True
                await stream.send_typed(answer.opening())
            await stream.send_typed(event)

        async def tell_pending(item: Pending) -> None:
            await tell(answer.pending(item))

        async with errors_sent(request, stream, stream.send_typed):
            async with pending_told(state.people, answer.id, plan.registry, tell_pending):
                async for event in events:
                    await tell(event)
            for event in answer.closing():
                await tell(event)
        await stream.end()
