"""Compacting a conversation: the model is asked for a summary, which stands for what was before it.

The question follows the conversation's own prompt, with its tools, so that the summary computes the
tokens of the question and its own alone.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Never

from caesura.intercept.calls.events import TextDelta
from caesura.runtime.errors import LimitReached
from caesura.runtime.run.context import Plan
from caesura.runtime.run.fold import RunFold
from caesura.runtime.server.api.decoding import begun_run
from caesura.runtime.server.keys.sender import Sender
from caesura.runtime.server.load.state import State
from caesura.scheduler.messages import Message
from caesura.tools.registry import Registry

SUMMARISE = (
    "Summarise our conversation so far for somebody who continues it: the facts, the decisions, "
    "the results of tools, and what is still to be done. Answer with the summary alone."
)
"""The question behind a conversation that the model is asked to compact."""
HEADING = "Summary of the conversation so far:"


def summary_message(summary: str) -> Message:
    """Return the message that shows a summary to the model."""
    return {"role": "user", "content": f"{HEADING}\n{summary}"}


def is_summary(message: Message) -> bool:
    """Return whether a message shows a summary to the model."""
    return message.get("role") == "user" and str(message.get("content")).startswith(HEADING)


def summarising(plan: Plan, question: str = SUMMARISE) -> Plan:
    """Return the plan of a summary of a plan's conversation, whose prompt begins as its own.

    The model is shown the same tools, and none can be called.
    """
    sampling = replace(plan.sampling, calls=None, text=None, stop=(), min_tokens=None)
    spec = replace(plan.spec, sampling=sampling, pausing=False, tool_choice="none", pauses={})
    return replace(
        plan,
        messages=(*plan.messages, {"role": "user", "content": question}),
        sampling=sampling,
        spec=replace(spec, prefill=False),
        registry=Registry(),
        forced_name=None,
    )


def heads_of(messages: Sequence[Message], own: Sequence[Message]) -> Sequence[Message]:
    """Return the system messages with which a conversation begins: `own`, and those before it."""
    count = next((n for n, each in enumerate(messages) if each.get("role") != "system"), 0)
    return messages[:count] if len(messages[:count]) > len(own) else own


def continued(plan: Plan, summary: str, heads: Sequence[Message]) -> Plan:
    """Return the plan of the answer to a conversation of which `heads` and a summary are left."""
    messages = (*heads, summary_message(summary))
    return replace(plan, messages=messages, spec=replace(plan.spec, prefill=False))


class Summary(RunFold[Never]):
    """The summary that a run writes."""

    def __init__(self) -> None:
        """Create an empty one."""
        super().__init__()
        self._pieces: list[str] = []

    def _on_text(self, event: TextDelta) -> None:
        self._pieces.append(event.text)

    @property
    def text(self) -> str | None:
        """The summary, or None if the model wrote none or did not come to its end."""
        return None if self.is_cut else "".join(self._pieces).strip() or None


async def summarised(
    state: State, plan: Plan, question: str | None, answer_id: str, sender: Sender
) -> Summary:
    """Return the model's summary of a plan's conversation; raise what its run raises."""
    plan = summarising(plan, question or SUMMARISE)
    summary = Summary()
    session_id = f"{answer_id}_summary"
    origin = plan.spec.origin
    named = replace(origin, session=origin.session or answer_id)
    session = state.opened(replace(plan.spec, origin=named), session_id)
    try:
        async with begun_run(state, plan, session, session_id, sender) as run, aclosing(run):
            async for event in run:
                summary.take(event)
    except LimitReached as limit:
        if limit.limit != "max_tokens":
            raise
        summary.cut()
    finally:
        await asyncio.shield(session.close())
    return summary
