"""Tools of MCP servers, over stdio or streamable HTTP, by the `mcp` library.

One long-lived task per server holds the connection and reconnects it. The operator chooses the
server, but its answers are not trusted. Messages are bounded, unreadable ones become error
results, and a schema's regular expressions are never run.
"""

from caesura.tools.mcp.server import MCPServer
from caesura.tools.mcp.settings import ServerSettings, servers_from_json

__all__ = ["MCPServer", "ServerSettings", "servers_from_json"]
