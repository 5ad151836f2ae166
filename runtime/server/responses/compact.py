"""Counting the tokens of a prompt, and compacting a conversation to a summary by the model."""

import time
from collections.abc import Sequence
from typing import Any

from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import Transcript, digest
from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.api.decoding import begun_run, with_sender
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.messages import compaction, messages_of, with_instructions
from caesura.runtime.server.responses.plan import offered
from caesura.runtime.server.responses.resource import usage_of
from caesura.runtime.server.responses.schema import CompactRequest, TokenCountRequest
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.tools.registry import Registry

SUMMARISE = (
    "Summarise our conversation so far for somebody who continues it: the facts, the decisions, "
    "the results of tools, and what is still to be done. Answer with the summary alone."
)


async def counted_tokens(
    responses: Responses,
    state: State,
    asked: TokenCountRequest,
    given: Sequence[Item],
    sender: Sender,
) -> int:
    """Return the number of tokens of the prompt of a request; raise `ApiError`."""
    adapter_of(asked.model or state.engine.model, state.engine)
    reach = responses.reach(sender)
    items = await responses.library.resolved(given, reach, sender.tenant)
    history = await responses.library.history(asked, {}, reach)
    offer = offered(asked, state.tools, state.people)
    own = messages_of(items, history.messages)
    messages = with_instructions(asked.instructions, [*history.messages, *own])
    if not messages:
        raise invalid("input is missing: send a text, or a list of items.", "input")
    spec = SessionSpec(tools=offer.specs, template=asked.template())
    inlined = await state.media.inlined(messages, state.engine.media_rules)
    return await state.engine.count_prompt(spec, inlined)


async def compacted(
    responses: Responses,
    state: State,
    asked: CompactRequest,
    given: Sequence[Item],
    sender: Sender,
) -> dict[str, Any]:
    """Return the messages of the user, and a summary that the model writes of all of them.

    Raises `ApiError`, and what the run raises.
    """
    adapter = adapter_of(asked.model, state.engine)
    reach = responses.reach(sender)
    items = await responses.library.resolved(given, reach, sender.tenant)
    history = await responses.library.history(asked, {}, reach)
    own = messages_of(items, history.messages)
    if not (history.messages or own):
        raise invalid("input is missing: send a text, or a list of items.", "input")
    question: Message = {"role": "user", "content": SUMMARISE}
    messages = with_instructions(asked.instructions, [*history.messages, *own, question])
    response_id = ids.new_id(ids.RESPONSE)
    summary, usage = await _summary(state, messages, adapter, response_id, sender.of_user(None))
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*filter(_is_users, [*history.items, *items]), compaction(summary)],
        "usage": usage,
    }


async def _summary(
    state: State,
    messages: list[Message],
    adapter: str | None,
    name: str,
    sender: Sender,
) -> tuple[str, dict[str, Any]]:
    """Return the model's answer to the messages, and the token counts."""
    sampling = Sampling()
    plan = Plan(
        messages=tuple(messages),
        conversation=digest(messages),
        user=None,
        spec=SessionSpec(sampling=sampling, pausing=False, tool_choice="none", adapter=adapter),
        sampling=sampling,
        registry=Registry(),
        client_tools=frozenset(),
        limits=state.limits,
    )
    answer = Transcript()
    plan = with_sender(state, plan, sender)
    session = state.engine.open(plan.spec)
    try:
        async with begun_run(state, plan, session, name, sender) as events:
            async for event in events:
                answer.take(event)
    finally:
        await session.close()
    text = answer.messages[-1]["content"] if answer.messages else ""
    return text.strip(), usage_of(answer.total, answer.cached_tokens)


def _is_users(item: Item) -> bool:
    return (item["type"], item.get("role")) == ("message", "user")
