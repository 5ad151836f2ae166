"""`POST /v1/chat/completions`: each request has one engine session and one run."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

from aiohttp import web

from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import LimitReached
from caesura.runtime.run.loop import run
from caesura.runtime.server.chat.answer import Answer, Delta
from caesura.runtime.server.chat.asker import asker_of
from caesura.runtime.server.chat.plan import Plan, make_plan
from caesura.runtime.server.chat.schema import ChatRequest, parse
from caesura.runtime.server.chat.wire import Chunks, completion
from caesura.runtime.server.errors import client_left, from_exception
from caesura.runtime.server.people import PEOPLE, pending_told
from caesura.runtime.server.state import OUTCOME, STATE, State
from caesura.runtime.server.stream import EventStream
from caesura.tools.context import Scope
from caesura.tools.dispatch.dispatcher import Dispatcher

MAX_INLINE_BODY_BYTES = 64 * 2**10
"""The largest body that the event loop parses itself; a thread parses larger ones."""
_PARSING = ThreadPoolExecutor(2, "caesura-parsing")


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer a chat completion request, streamed or whole.

    In every case the handler closes the engine's session and cancels the tools under way, also
    when the client leaves.
    """
    started = time.monotonic()
    state = request.app[STATE]
    with state.gate.enter():
        asked, plan = await _planned(state, await request.read())
        answer = Answer(state.engine.model, plan.client_tools, pausing=plan.spec.pausing)
        session = state.engine.open(plan.spec)
        try:
            decoding = _decode(state, plan, session, answer, started, request.headers)
            async with aclosing(decoding) as deltas:
                if asked.stream:
                    return await _stream(request, asked, plan, answer, deltas)
                async for _ in deltas:
                    pass
                return web.json_response(completion(answer))
        finally:
            # Shielded, since a second cancellation must not leave the session in the engine.
            await asyncio.shield(session.close(follow_up=answer.leaves_calls))


async def _planned(state: State, body: bytes) -> tuple[ChatRequest, Plan]:
    """Parse and check a body, in a thread if it is large; raise `ApiError` if it is invalid."""

    def planned() -> tuple[ChatRequest, Plan]:
        asked = parse(body)
        return asked, make_plan(asked, state.engine.model, state.tools, state.limits)

    if len(body) <= MAX_INLINE_BODY_BYTES:
        return planned()
    return await asyncio.get_running_loop().run_in_executor(_PARSING, planned)


async def _decode(
    state: State,
    plan: Plan,
    session: EngineSession,
    answer: Answer,
    started: float,
    headers: Mapping[str, str],
) -> AsyncGenerator[Delta, None]:
    """Run the plan to its end; yield the deltas for the client as they come."""
    waiting = True
    try:
        # A question to a person names the completion that it belongs to.
        async with Dispatcher(plan.registry, scope=Scope(answer.id)) as dispatcher:
            dispatcher.conversation = plan.conversation
            dispatcher.asker = asker_of(plan.user, headers)
            dispatcher.count_by(state.engine.count_tokens, state.engine.context_tokens)
            trace = None
            if state.tracing is not None:
                model = state.engine.model
                trace = state.tracing.run(dispatcher, model, response=answer.id, came_with=headers)
                session = trace.session(session)
            events = run(
                session,
                plan.messages,
                dispatcher=dispatcher,
                own_tools=plan.registry.names,
                caller_tools=plan.client_tools,
                limits=plan.limits,
                sampling=plan.sampling,
                pausing=plan.spec.pausing,
            )
            if trace is not None:
                events = trace.events(events)
            async with aclosing(events):
                async for event in events:
                    state.metrics.observe(event, plan.spec.pausing, plan.registry)
                    for delta in answer.take(event):
                        if waiting:
                            state.metrics.first_token.observe(time.monotonic() - started)
                            waiting = False
                        yield delta
    except LimitReached as limit:
        # A turn that ended with a call used up the tokens. The client sees a truncated answer.
        if limit.limit != "max_tokens":
            raise
        answer.cut()


async def _stream(
    request: web.Request,
    asked: ChatRequest,
    plan: Plan,
    answer: Answer,
    deltas: AsyncGenerator[Delta, None],
) -> web.StreamResponse:
    chunks = Chunks(answer, include_usage=asked.include_usage)
    people, tools = request.app.get(PEOPLE), plan.registry
    async with EventStream(request, request.app[STATE].keep_alive_seconds) as stream:
        opened = False

        async def send(chunk: dict[str, Any]) -> None:
            nonlocal opened
            if not opened:
                opened = True
                await stream.send(chunks.opening())
            await stream.send(chunk)

        try:
            async with pending_told(people, answer.id, tools, lambda i: send(chunks.pending(i))):
                async for delta in deltas:
                    await send(chunks.delta(delta))
            for chunk in chunks.closing():
                await send(chunk)
            await stream.send_done()
        except Exception as error:
            await stream.hush()
            if not stream.begun or client_left(request):
                raise
            told = from_exception(error)
            request[OUTCOME] = told.status
            await stream.send(told.body())
    await stream.response.write_eof()
    return stream.response
