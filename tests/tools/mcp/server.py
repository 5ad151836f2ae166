"""A small MCP server for the tests, over stdio or HTTP: `server.py [http PORT]`."""

import asyncio
import base64
import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import AudioContent, ImageContent, TextContent
from pydantic import BaseModel

server = MCPServer("test", version="1")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(32)).decode()
begun: list[str] = []
cancelled: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def refuse(reason: str) -> str:
    """Fail, and say why."""
    raise ToolError(reason)


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    begun.append("wait")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "waited"


@server.tool()
def was_begun() -> int:
    """Tell how many calls of `wait` have begun."""
    return len(begun)


@server.tool()
def was_cancelled() -> int:
    """Tell how many calls were cancelled."""
    return len(cancelled)


@server.tool()
async def count(context: Context, to: int) -> str:
    """Count with progress."""
    for number in range(1, to + 1):
        await context.report_progress(number, to, f"at {number}")
    return "counted"


@server.tool(structured_output=False)
def picture() -> list:
    """Make a picture and a sound."""
    return [
        TextContent(type="text", text="here:"),
        ImageContent(type="image", data=PNG, mime_type="image/png"),
        AudioContent(type="audio", data=PNG, mime_type="audio/wav"),
        ImageContent(type="image", data=PNG, mime_type="image/tiff"),
        ImageContent(type="image", data="!", mime_type="image/png"),
    ]


@server.tool()
def big(characters: int) -> str:
    """Answer with so many characters."""
    return "x" * characters


@server.tool()
def environment() -> str:
    """Tell the environment variables."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool()
def pid() -> int:
    """Tell the process's id."""
    return os.getpid()


@server.tool()
def die() -> str:
    """End at once."""
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


class Wish(BaseModel):
    """A form."""

    colour: str


@server.tool()
async def ask(context: Context) -> str:
    """Ask the user for a colour."""
    answer = await context.elicit("Which colour?", Wish)
    return answer.action


@server.tool()
async def learn(context: Context, name: str) -> str:
    """Get another tool."""
    server.add_tool(lambda: "learned", name=name, description="New.")
    await context.session.send_tool_list_changed()  # the protocol until 2025
    await context.notify_tools_changed()  # that of 2026
    return "ok"


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
