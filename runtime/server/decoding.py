"""Decoding one request: its run over an engine's session, counted and traced."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

from caesura.runtime.engine import EngineSession
from caesura.runtime.events import RunEvent
from caesura.runtime.run.loop import run
from caesura.runtime.server.chat.asker import asker_of, owner_of
from caesura.runtime.server.chat.plan import Plan
from caesura.runtime.server.state import State
from caesura.tools.context import Scope
from caesura.tools.dispatch.dispatcher import Dispatcher


def owned(plan: Plan, headers: Mapping[str, str]) -> Plan:
    """Return the plan for a session whose answers only the same sender can continue."""
    return replace(plan, spec=replace(plan.spec, asker=owner_of(plan.user, headers)))


async def decode(
    state: State, plan: Plan, session: EngineSession, name: str, headers: Mapping[str, str]
) -> AsyncGenerator[RunEvent, None]:
    """Run the plan to its end, and yield the run's events.

    `name` is the id of the answer, which the traces and questions to people tell. `headers` are
    those of the request. Raises what `caesura.runtime.run.loop.run` raises.
    """
    async with Dispatcher(plan.registry, scope=Scope(name)) as dispatcher:
        dispatcher.conversation = plan.conversation
        dispatcher.asker = asker_of(plan.user, headers)
        dispatcher.count_by(state.engine.count_tokens, state.engine.context_tokens)
        trace = None
        if state.tracing is not None:
            model = state.engine.model
            trace = state.tracing.run(dispatcher, model, response=name, came_with=headers)
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
                yield event
