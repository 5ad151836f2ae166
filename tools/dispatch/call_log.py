"""What a dispatcher asks of a log of calls, so that no call is made twice."""

from typing import Any, Protocol

from caesura.tools.result import ToolCall, ToolResult
from caesura.tools.tool import Tool


class CallLog(Protocol):
    """The calls of a run that may be driven again after its process has died."""

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """Return the result that the call had before, or None if it has to be made."""
        ...

    def notice(self, call: ToolCall, tool: Tool) -> str:
        """Return a sentence for a person if the call may have been made already, or an empty text.

        It is empty too for a tool that is safe to repeat.
        """
        ...

    async def settle(
        self, call: ToolCall, tool: Tool, arguments: dict[str, Any], notice: str
    ) -> str | None:
        """Decide about such a call: return None to make it, or the reason why it is not made."""
        ...

    async def starts(self, call: ToolCall, tool: Tool) -> None:
        """Write down that the tool runs now. It runs when this returns, and not if this raises."""
        ...

    def ended(self, result: ToolResult) -> None:
        """Write down the result of a call."""
        ...
