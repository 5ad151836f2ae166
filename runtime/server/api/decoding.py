"""Decoding the answers of one request: their runs over an engine's sessions, counted and traced.

The choices of a request are decoded side by side: `n` sessions over one prompt.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import LimitReached
from caesura.runtime.events import RunEvent
from caesura.runtime.journal.journaled_run import JournaledRun
from caesura.runtime.run.loop import run
from caesura.runtime.run.media import Pictures, count_pictures
from caesura.runtime.run.plan import Plan
from caesura.runtime.server.keys.key import salted
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.runtime.supervision.supervisor import until_alive
from caesura.scheduler.messages import Message
from caesura.tools.context import Scope, ToolRun
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.result import ResultLimits

Piece = TypeVar("Piece")
Delta = dict[str, Any]
Numbered = tuple[int, Delta]
"""A delta, and the number of the choice that it belongs to."""


class Answering(Protocol[Piece]):
    """An answer that is built from a run's events, in the form of some API."""

    id: str

    @property
    def leaves_calls(self) -> bool:
        """Whether the answer ended with calls that the client will answer later."""
        ...

    def take(self, event: RunEvent) -> list[Piece]:
        """Add one event; return the pieces that a stream sends for it."""
        ...

    def cut(self) -> None:
        """Record that a token limit ended the answer between two turns."""
        ...

    def message(self) -> Message:
        """Return the whole answer as a message of a later history."""
        ...


def with_sender(state: State, plan: Plan, sender: Sender) -> Plan:
    """Return the plan of a session whose answers only the same sender can continue.

    Where keys are apart, its prefix cache is its key's alone.
    """
    spec = replace(plan.spec, owner=sender.owner, origin=sender.origin)
    if state.door.is_apart:
        spec = replace(spec, cache_salt=salted(sender.tenant, spec.cache_salt))
    return replace(plan, spec=spec)


async def decode(
    state: State,
    plan: Plan,
    session: EngineSession,
    name: str,
    sender: Sender,
    kept: JournaledRun | None = None,
) -> AsyncGenerator[RunEvent, None]:
    """Run the plan to its end, and yield the run's events.

    `name` is the id of the answer, which the traces and questions to people tell. `kept` is the
    run's journal, if it has one. Raises what
    `caesura.runtime.run.loop.run` raises, and `MediaRefused`.
    """
    rules = state.engine.media_rules
    messages = await state.media.inlined(plan.messages, rules)
    pictures = Pictures(rules, count_pictures(messages))
    trace = None
    if state.tracing is not None:
        model = plan.spec.adapter or state.engine.model
        trace = state.tracing.run(model, response=name, came_with=sender.trace)
        session = trace.session(session)
    tool_run = ToolRun(
        Scope(name),
        conversation=plan.conversation,
        asker=sender.asker or ("" if kept is None else kept.asker),
        tenant=sender.tenant,
        usable=partial(until_alive, state.engine),
        results=ResultLimits.of_model(state.engine.count_tokens, state.engine.context_tokens),
        on_call=None if trace is None else trace.call,
        log=None if kept is None else kept.calls,
    )
    async with Dispatcher(plan.registry, tool_run) as dispatcher:
        state.runs.add(dispatcher, kept=kept is not None)
        events = run(
            session,
            messages,
            dispatcher=dispatcher,
            own_tools=plan.registry.names,
            caller_tools=plan.client_tools,
            limits=plan.limits,
            sampling=plan.sampling,
            pausing=plan.spec.pausing,
            pictures=pictures,
            results_first=() if kept is None else kept.results_first,
        )
        if trace is not None:
            events = trace.events(events)
        async with aclosing(events):
            async for event in events:
                state.metrics.observe(event, plan.spec.pausing, plan.registry)
                if state.audit is not None:
                    state.audit.observe(event, tool_run.tenant, name, tool_run.log)
                if isinstance(event, TurnEnded) and state.gate.quotas:
                    tokens = event.prompt_tokens + event.completion_tokens
                    state.gate.quotas.spend(sender, tokens)
                yield event


@asynccontextmanager
async def opened(
    state: State, plan: Plan, answer: Answering[Piece], kept: JournaledRun | None = None
) -> AsyncIterator[EngineSession]:
    """Open the engine's session of an answer, and close it in every case."""
    origin = plan.spec.origin
    named = replace(origin, name=origin.name or answer.id)
    log = None if kept is None else kept.journal
    session = state.engine.open(replace(plan.spec, origin=named), log)
    try:
        yield session
    finally:
        # Shielded, since a second cancellation must not leave the session in the engine.
        await asyncio.shield(session.close(follow_up=answer.leaves_calls))


async def pieces(
    state: State,
    plan: Plan,
    session: EngineSession,
    answer: Answering[Piece],
    started: float,
    sender: Sender,
    kept: JournaledRun | None = None,
) -> AsyncGenerator[Piece, None]:
    """Run the plan to its end; yield the answer's pieces as they come.

    `started` is the time at which the request came, by `time.monotonic`.
    """
    waiting = True
    events = decode(state, plan, session, answer.id, sender, kept)
    try:
        async with aclosing(events):
            async for event in events:
                for piece in answer.take(event):
                    if waiting:
                        state.metrics.first_token.observe(time.monotonic() - started)
                        waiting = False
                    yield piece
    except LimitReached as limit:
        # A turn that ended with a call used up the tokens. The client sees a truncated answer.
        if limit.limit != "max_tokens":
            raise
        answer.cut()
    else:
        await session.remember([answer.message()])


async def side_by_side(
    choices: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[Numbered, None]:
    """Yield the deltas of all choices as they come, each with its choice's number.

    The others begin when the first has its first delta, since its prompt is then in the prefix
    cache. An error of one choice ends all of them, and is raised.
    """
    deltas: asyncio.Queue[Numbered | BaseException | None] = asyncio.Queue()
    begun = asyncio.Event()

    async def decode(number: int) -> None:
        if number:
            await begun.wait()
        try:
            async with aclosing(choices[number]) as stream:
                async for delta in stream:
                    begun.set()
                    deltas.put_nowait((number, delta))
            deltas.put_nowait(None)
        except BaseException as error:
            deltas.put_nowait(error)
            raise
        finally:
            begun.set()

    tasks = [asyncio.create_task(decode(number)) for number in range(len(choices))]
    try:
        left = len(tasks)
        while left:
            told = await deltas.get()
            if isinstance(told, BaseException):
                raise told
            if told is None:
                left -= 1
            else:
                yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
