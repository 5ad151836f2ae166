"""Tools of MCP servers, over stdio or streamable HTTP, by the `mcp` library.

One long-lived task per server holds the connection and mends it. A server is the operator's
choice and its answers are not: messages are bounded, what cannot be read is an error result, and
a schema's regular expressions are never run.
"""

from caesura.tools.mcp.server import MCPServer
from caesura.tools.mcp.settings import ServerSettings, servers_from_json

__all__ = ["MCPServer", "ServerSettings", "servers_from_json"]
