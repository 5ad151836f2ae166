"""Tools that a model may call, and the dispatcher that runs their calls.

A tool is a typed Python function under `@tool`. A `Registry` holds tools by name. A session's
`Dispatcher` runs the calls that a model writes, and returns every failure as a result.
"""

from caesura.tools.dispatcher import Dispatcher
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall, ToolResult, malformed
from caesura.tools.tool import Tool, tool

__all__ = [
    "Dispatcher",
    "Registry",
    "Tool",
    "ToolCall",
    "ToolResult",
    "malformed",
    "tool",
]
