"""Counting the tokens of a prompt, and compacting a conversation to a summary by the model."""

import asyncio
from collections.abc import Sequence
from typing import Any

from caesura.runtime.run.served_agent import instructed
from caesura.runtime.server.api.agents import AgentRequest
from caesura.runtime.server.api.chat_request import adapter_of
from caesura.runtime.server.api.hosted import run_here
from caesura.runtime.server.api.notes import with_notes
from caesura.runtime.server.http.errors import ApiError, invalid
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.items import TRIGGER
from caesura.runtime.server.responses.messages import messages_of, with_instructions
from caesura.runtime.server.responses.plan import found_tools, offered
from caesura.runtime.server.responses.schema import (
    CompactRequest,
    ResponseRequest,
    TokenCountRequest,
    left_out,
    with_hosted,
)
from caesura.runtime.server.responses.service import Responses
from caesura.runtime.server.responses.store import Item
from caesura.scheduler.messages import SessionSpec


async def counted_tokens(
    responses: Responses,
    state: State,
    asked: TokenCountRequest,
    given: Sequence[Item],
    sender: Sender,
) -> int:
    """Return the number of tokens of the prompt of a request; raise `ApiError`."""
    adapter_of(asked.model or state.engine.model, state.engine, state.agents)
    agents = await instructed(state.agents, asked.model)
    agent, tools = AgentRequest.of(asked.model, agents), state.tools
    if agent is not None:
        asked, tools = agent.asked(asked), agent.among(tools)
    reach = responses.reach(sender)
    items = await responses.library.resolved(given, reach, sender.tenant)
    history = await responses.library.history(asked, {}, reach)
    asked = with_hosted(asked, run_here(state.tools))
    found = found_tools([*history.items, *items])
    offer = offered(asked, tools, state.people, found=found)
    own = messages_of(items, history.messages)
    messages = with_instructions(asked.instructions, [*history.messages, *own])
    if not messages:
        raise invalid("input is missing: send a text, or a list of items.", "input")
    specs = offer.specs
    if agent is not None:
        messages, specs = [*agent.head, *messages], agent.specs(specs)
    spec = SessionSpec(tools=specs, template=asked.template())
    inlined = await state.media.inlined(messages, state.engine.media_rules)
    return await state.engine.count_prompt(spec, inlined)


async def compacted(
    responses: Responses, asked: CompactRequest, given: Sequence[Item], sender: Sender
) -> dict[str, Any]:
    """Return the messages of the user, and a summary that the model writes of all of them.

    Raises `ApiError`, and what the run raises.
    """
    reach = responses.reach(sender)
    items = await responses.library.resolved(given, reach, sender.tenant)
    history = await responses.library.history(asked, {}, reach)
    request = await _request(responses, asked, reach)
    trigger: Item = {"type": TRIGGER, "id": ids.new_id(ids.LEFT_OUT)}
    part, run = await responses.create(request, [*items, trigger], sender)
    try:
        await part.feed.ended()
    finally:
        if not part.feed.is_ended:
            await asyncio.shield(responses.left(part, run))
    if part.feed.error is not None:
        raise part.feed.error
    made = part.answer.resource
    if made.error is not None:
        raise ApiError(500, made.error["message"], code=made.error["code"])
    told = {
        "id": made.id,
        "object": "response.compaction",
        "created_at": made.created_at,
        "output": [*filter(_is_users, [*history.items, *items]), *made.output],
        "usage": made.usage,
    }
    own = with_notes(None, left_out(asked))
    return told if own is None else told | {"caesura": own}


_PROMPT = ("instructions", "reasoning", "tools")
"""What shapes a prompt, and is that of the response before where a request leaves it out."""


async def _request(responses: Responses, asked: CompactRequest, reach: Reach) -> ResponseRequest:
    """Return the request for a response that is the summary.

    Its prompt begins as that of the conversation's last response, which is in the prefix cache.
    """
    extra = asked.model_extra or {}
    fields = asked.model_dump(by_alias=True, exclude_unset=True, exclude={"input", *extra})
    if asked.previous_response_id is not None:
        before = (await responses.get(asked.previous_response_id, reach)).resource
        fields = {name: before[name] for name in _PROMPT if before.get(name)} | fields
    return ResponseRequest.model_validate(fields | {"store": False})


def _is_users(item: Item) -> bool:
    return (item["type"], item.get("role")) == ("message", "user")
