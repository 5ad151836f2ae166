"""Tools whose every call a person must approve."""

from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

from caesura.tools.attempt import Expired, run_bounded
from caesura.tools.context import CallContext, current
from caesura.tools.errors import TimedOut
from caesura.tools.limits import Slots
from caesura.tools.people.people import People
from caesura.tools.tool import Tool


class ApprovedCall:
    """Calls a tool once a person has approved the call.

    The wait uses no concurrency slot of the tool and does not count towards its time-out.
    """

    def __init__(self, tool: Tool, people: People, deadline_seconds: float) -> None:
        self.deadline_seconds = deadline_seconds
        """How long a person has to approve a call."""
        self.people = people
        """Those who decide."""
        self._tool = tool
        self._slots = Slots()
        self._approved: WeakSet[CallContext] = WeakSet()

    @property
    def longest_seconds(self) -> float | None:
        """The longest duration of a call, including the approval; None: no limit."""
        run_seconds = self._tool.timeout_seconds
        return None if run_seconds is None else self.deadline_seconds + run_seconds

    async def __call__(self, /, **arguments: Any) -> Any:
        """Wait for the approval, and run the tool.

        Raises NoAnswer without approval, TimedOut when the run takes too long, and what the tool
        raises.
        """
        context = await self._approval(arguments)
        seconds = self._tool.timeout_seconds
        async with self._slots.slot(self._tool):
            if context is not None:
                await context.starts()
            try:
                return await run_bounded(partial(self._tool.call, **arguments), seconds)
            except Expired:
                raise TimedOut(f"no answer within {seconds:g} seconds") from None

    async def _approval(self, arguments: dict[str, Any]) -> CallContext | None:
        """Wait for the approval, unless this is a retry of an approved call; return the call.

        A person may take an hour. An approved call whose result nobody can use must not run.
        """
        try:
            context = current()
        except LookupError:
            context = None
        if context is None or context not in self._approved:
            await self.people.approve(
                self._tool.name,
                arguments,
                deadline_seconds=self.deadline_seconds,
                notice="" if context is None else context.notice,
            )
        if context is not None:
            self._approved.add(context)
            if context.run.usable is not None:
                await context.run.usable()
        return context


def with_approval(tool: Tool, people: People) -> Tool:
    """Return the tool with an approval before each call, unless it already has one."""
    if isinstance(tool.call, ApprovedCall):
        return tool
    call = ApprovedCall(tool, people, people.settings.approval_deadline_seconds)
    return replace(
        tool,
        call=call,
        approval=True,
        timeout_seconds=None,
        concurrency=None,
        expected_seconds=people.settings.expected_seconds + (tool.expected_seconds or 0.0),
    )


def person_deadline(tool: Tool) -> float | None:
    """Return the longest duration of a call that waits for a person, in seconds; None: unknown."""
    if tool.approval:
        return tool.call.longest_seconds if isinstance(tool.call, ApprovedCall) else None
    return tool.timeout_seconds
