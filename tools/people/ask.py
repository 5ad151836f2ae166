"""The tool with which a model asks a person."""

from caesura.tools.people.people import People
from caesura.tools.people.settings import Settings
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
