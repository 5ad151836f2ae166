"""Decoding the answers of one request: their runs over an engine's sessions, counted and traced.

The choices of a request are decoded side by side: `n` sessions over one prompt.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from caesura.intercept.calls.events import TurnEnded
from caesura.runtime.engine import EngineSession
from caesura.runtime.errors import CaesuraError, LimitReached, UsageError
from caesura.runtime.events import RunEnded, RunEvent, ToolReturned, Usage
from caesura.runtime.journal.journaled_run import JournaledRun
from caesura.runtime.run.context import Plan, RunContext
from caesura.runtime.run.limits import Budget
from caesura.runtime.run.loop import traced
from caesura.runtime.run.media import Pictures, count_pictures
from caesura.runtime.run.steering import Steering
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.keys.key import salted
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.runtime.tracing.who import RunIds
from caesura.scheduler.messages import Message, SessionSpec
from caesura.tools.context import Scope, ToolRun

LOG = logging.getLogger(__name__)

Piece = TypeVar("Piece")


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


@dataclass(frozen=True, slots=True)
class _Accounts:
    """Counts a run's turns and calls: among the metrics, for its sender's limits, for the audit."""

    state: State
    plan: Plan
    sender: Sender
    tools: ToolRun

    def turn_ended(self, turn: TurnEnded) -> None:
        self.state.metrics.turn_ended(turn, self.plan.spec.pausing)
        self.state.gate.quotas.spend(self.sender, turn.prompt_tokens + turn.completion_tokens)

    def tool_returned(self, returned: ToolReturned) -> None:
        self.state.metrics.tool_returned(returned, self.plan.registry)
        if self.state.audit is not None:
            self.state.audit.tool_returned(returned, self.tools)


class _SharedBudget:
    """The budget of a run, as the agents that its tools run share it.

    What these decode counts for the limits of the sender's key too.
    """

    def __init__(self, budget: Budget, state: State, sender: Sender) -> None:
        self._budget = budget
        self._state = state
        self._sender = sender

    @property
    def tokens_left(self) -> int | None:
        return self._budget.tokens_left

    def is_used_up(self, limit: str) -> bool:
        return self._budget.is_used_up(limit)

    def price(self, computed: int, cached: int, completion: int) -> float:
        return self._budget.price(computed, cached, completion)

    def begin_request(self) -> None:
        self._budget.begin_request()

    def add(self, usage: Usage, cost: float) -> None:
        self._budget.add(usage, cost)
        if tokens := usage.prompt_tokens + usage.completion_tokens:
            self._state.gate.quotas.spend(self._sender, tokens)


@asynccontextmanager
async def begun_run(
    state: State,
    plan: Plan,
    session: EngineSession,
    session_id: str,
    sender: Sender,
    journaled: JournaledRun | None = None,
    steering: Steering | None = None,
) -> AsyncIterator[AsyncGenerator[RunEvent, None]]:
    """Begin the run of a plan, and yield its events; the run ends with the context.

    `session_id` is the id of the answer, which the traces and questions to people tell. A
    `journaled` run has a journal. What is said to the run goes to `steering`. Raises
    `MediaRefused`; the events raise what `caesura.runtime.run.loop.run` raises.
    """
    rules = state.engine.media_rules
    messages = await state.media.inlined(plan.messages, rules)
    tools = ToolRun(
        Scope(session_id),
        asker=sender.asker or ("" if journaled is None else journaled.asker),
        tenant=sender.tenant,
        log=None if journaled is None else journaled.calls,
        program=plan.spec.origin.session,
        cache_salt=plan.spec.cache_salt,
        record=None if state.sessions is None else partial(state.sessions.record, sender.tenant),
    )
    trace = None
    if state.tracing is not None:
        model = plan.spec.adapter or state.engine.model
        ids = RunIds(session_id, getattr(session, "request_id", None))
        who = state.who(sender, plan.user, session_id)
        trace = state.tracing.run(model, plan.agent, ids=ids, came_with=sender.trace, who=who)
    pictures = Pictures(rules, count_pictures(messages))
    results_first = () if journaled is None else journaled.results_first
    context = RunContext.of(state.engine, plan, tools, pictures, trace, results_first)
    budget = Budget(plan.limits, time.monotonic)
    context = replace(
        context,
        budget=budget,
        steering=steering,
        tools=replace(context.tools, budget=_SharedBudget(budget, state, sender)),
        observer=_Accounts(state, plan, sender, context.tools),
    )
    async with context.dispatcher() as dispatcher:
        state.runs.add(dispatcher, journaled=journaled is not None)
        told = traced(session, messages, dispatcher, context)
        agent = None if plan.agent is None else state.agents.get(plan.agent)
        if agent is not None and agent.check is not None:
            told = _checked(told, agent.check)
        async with aclosing(told) as events:
            yield events


async def _checked(
    events: AsyncGenerator[RunEvent, None], check: Callable[[str], Awaitable[None]]
) -> AsyncGenerator[RunEvent, None]:
    """Yield a run's events; raise `InvalidOutput` instead of the end of one that does not fit."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, RunEnded) and event.reason == "stop":
                await check(event.text)
            yield event


@asynccontextmanager
async def open_session(
    state: State, plan: Plan, answer: Answering[Piece], journaled: JournaledRun | None = None
) -> AsyncIterator[EngineSession]:
    """Open the engine's session of an answer, and close it in every case."""
    origin = plan.spec.origin
    named = replace(origin, session=origin.session or answer.id)
    log = None if journaled is None else journaled.journal
    session = state.opened(replace(plan.spec, origin=named), answer.id, log)
    try:
        yield session
    finally:
        # Shielded, since a second cancellation must not leave the session in the engine.
        await asyncio.shield(session.close(follow_up=answer.leaves_calls))


LOWEST_PRIORITY = 2**31 - 1


async def filled(state: State, plan: Plan, sender: Sender) -> None:
    """Compute the KV cache of a prompt, so that the request that continues it finds it there.

    One token is sampled and thrown away. It has the lowest priority where vLLM schedules by
    priority. Elsewhere nothing is computed while another request is under way. A prompt that cannot
    be computed is left to the request that continues it, which tells its client why.
    """
    plan = with_sender(state, plan, sender)
    one = replace(plan.sampling, max_tokens=1, min_tokens=None, text=None, calls=None)
    spec = replace(plan.spec, sampling=one, pausing=False)
    try:
        session = _opened_behind_others(state, spec)
        if session is None:
            return
        try:
            with state.gate.enter(sender):
                messages = await state.media.inlined(plan.messages, state.engine.media_rules)
                async with aclosing(session.turn(messages, one)) as events:
                    async for event in events:
                        if isinstance(event, TurnEnded):
                            state.gate.quotas.spend(sender, event.prompt_tokens)
        finally:
            await asyncio.shield(session.close())
    except (ApiError, CaesuraError) as error:
        LOG.info("the KV cache of a prompt is not filled ahead: %s", error)


def _opened_behind_others(state: State, spec: SessionSpec) -> EngineSession | None:
    try:
        return state.engine.open(replace(spec, priority=LOWEST_PRIORITY))
    except UsageError:  # vLLM does not schedule by priority
        return None if len(state.gate) else state.engine.open(spec)


async def stream_pieces(
    state: State,
    plan: Plan,
    session: EngineSession,
    answer: Answering[Piece],
    started: float,
    sender: Sender,
    journaled: JournaledRun | None = None,
) -> AsyncGenerator[Piece, None]:
    """Run the plan to its end; yield the answer's pieces as they come.

    `started` is the time at which the request came, by `time.monotonic`.
    """
    waiting = True
    try:
        async with begun_run(state, plan, session, answer.id, sender, journaled) as events:
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


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of one choice."""

    error: BaseException | None = None


async def side_by_side(
    choices: Sequence[AsyncGenerator[Piece, None]],
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of all choices as they come.

    The others begin when the first has its first piece, since its prompt is then in the prefix
    cache. An error of one choice ends all of them, and is raised.
    """
    pieces: asyncio.Queue[Piece | _Ended] = asyncio.Queue()
    begun = asyncio.Event()

    async def decode(number: int) -> None:
        if number:
            await begun.wait()
        try:
            async with aclosing(choices[number]) as stream:
                async for piece in stream:
                    begun.set()
                    pieces.put_nowait(piece)
            pieces.put_nowait(_Ended())
        except BaseException as error:
            pieces.put_nowait(_Ended(error))
            raise
        finally:
            begun.set()

    tasks = [asyncio.create_task(decode(number)) for number in range(len(choices))]
    try:
        left = len(tasks)
        while left:
            piece = await pieces.get()
            if not isinstance(piece, _Ended):
                yield piece
            elif piece.error is not None:
                raise piece.error
            else:
                left -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
