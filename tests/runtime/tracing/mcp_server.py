"""An MCP server that tells the trace context of its calls: `mcp_server.py [PORT]`."""

import json
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("tracing")


@server.tool()
def told(context: Context) -> str:
    """Tell the trace context of this call."""
    request = context.request_context.request
    meta = context.request_context.meta or {}
    return json.dumps(
        {
            "meta": dict(meta).get("traceparent"),
            "header": None if request is None else request.headers.get("traceparent"),
        }
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
