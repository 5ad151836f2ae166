"""Tools that ask people: `ask_user`, and every tool whose calls a person must approve."""

from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

from caesura.tools.attempt import Expired, run_bounded
from caesura.tools.context import CallContext, current
from caesura.tools.errors import TimedOut
from caesura.tools.limits import Slots
from caesura.tools.people.people import People, Settings
from caesura.tools.services import SetupError
from caesura.tools.tool import Tool, tool

GRACE_SECONDS = 60.0
"""The tool's time-out is this much later than the deadline, which the item itself keeps."""


def make_ask_user(people: People, settings: Settings | None = None) -> Tool:
    """Return the tool `ask_user`, answered by `people`. Raises SetupError for bad settings."""
    settings = settings or Settings.model_validate({})
    deadline_seconds, default = settings.deadline_seconds, settings.default
    timeout_seconds = settings.timeout_seconds or deadline_seconds + GRACE_SECONDS
    if timeout_seconds <= deadline_seconds:
        raise SetupError(
            "[tools.ask_user]: timeout_seconds ends the call before deadline_seconds; remove it"
        )
    if settings.approval:
        raise SetupError("[tools.ask_user]: a question needs no approval; remove approval")

    @tool(
        timeout_seconds=timeout_seconds,
        waits_for_person=True,
        safe_to_repeat=True,  # asked again, a question waits for the same answer
        expected_seconds=min(people.settings.expected_seconds, deadline_seconds),
    )
    async def ask_user(question: str, options: list[str] = []) -> str:  # noqa: B006
        """Ask the user and wait for the answer.

        Args:
            question: what to ask.
            options: answers to choose from.
        """
        return await people.ask(
            question, options, deadline_seconds=deadline_seconds, default=default
        )

    return ask_user


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
